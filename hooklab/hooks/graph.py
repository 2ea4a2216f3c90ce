from collections import deque
import math
def parents_of(node): return [p for p, _ in node.next_functions if p is not None]
def nodes_before(starts, ends=(), most=math.inf):
    todo, seen = deque(starts), {None}
    while todo and len(seen) < most:
        node = todo.popleft()
        if node in seen or node in ends: continue
        seen.add(node); yield node; todo += parents_of(node)
