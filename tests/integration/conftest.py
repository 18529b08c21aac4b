import sys
from pathlib import Path

# The made-up run that several test files and the processes they start share.
sys.path.insert(0, str(Path(__file__).parent))
