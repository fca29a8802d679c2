"""Shell scripts that run on the board, and the parsers of their output.

`marks.py` sends marks around the work, `files.py` works on many files, `survival.py` writes files and looks for them
after a power cut. Only `bench` calls them. They need only programs that are on the card.
"""
