import sys
from pathlib import Path

# The made-up run that several test files and the processes they start share, and what starts them.
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
