import sys
from pathlib import Path

# Made-up rows and runs, and workers, that several test files and the processes they start share.
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "integration")]
