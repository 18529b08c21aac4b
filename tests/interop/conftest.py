import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
# Models of transformers and how they are compared with ours, which all families' tests share.
sys.path.insert(0, str(Path(__file__).parent))
