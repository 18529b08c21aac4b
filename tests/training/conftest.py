import sys
from pathlib import Path

# Rows and workers that several test files and the processes they start share.
sys.path.insert(0, str(Path(__file__).parent))
