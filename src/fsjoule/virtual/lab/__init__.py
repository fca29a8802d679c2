"""The virtual lab's programs: how they are started, watched and ended."""
