import linecache, sys
from pathlib import Path
import torch
OURS = Path(__file__).parents[1]
NOT_THE_USERS = f"{Path(torch.__file__).parent}/", f"{OURS}/"
def user_frame(frame):
    while frame is not None and frame.f_code.co_filename.startswith(NOT_THE_USERS): frame = frame.f_back
    return frame
def quoted_line(file, line, variables=None):
    text = linecache.getline(file, line, variables).strip()
    if not text: return ""
    return f"`{text[:79]}…`" if len(text) > 80 else f"`{text}`"
