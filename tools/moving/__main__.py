"""Measures the data of all figures that move, or of those that are named: python -m moving learning-rate"""
import sys
import time

from moving import DATA, data_file, write

for name in sys.argv[1:] or DATA:
    start = time.perf_counter()
    write(name)
    print(f"{name}: {time.perf_counter() - start:.0f} s, {data_file(name).stat().st_size/1000:.0f} kB", flush=True)
