"""Shell scripts that run on the board, and the reading of what they leave behind.

`marks.py` sends marks around the work, `files.py` works on many files, `survival.py` writes files and looks for them
after a power cut. Only `bench` calls them; they need no more than the programs on the card.
"""
