"""Colors that were chosen for white paper, in both themes of the site."""
import re
from functools import cache

# ink and paper of the light and of the dark theme, as in nbs/assets/site.css
INK, PAPER = ("#22282d", "#dde3e6"), ("#fdfcfa", "#15191c")
ENOUGH = 4.5  # contrast that a colored line needs on the dark ground, and a label on its shape
COLOR = re.compile(r"#[0-9a-f]{6}\b")


@cache
def in_both(color: str) -> str:
    """CSS for a color that was chosen for white. Greys keep their contrast with the ground; other colors become
    lighter on the dark one where they would be hard to see."""
    if color == "#000000": return f"var(--ink, {color})"
    if color == "#ffffff": return f"var(--paper, {color})"
    return f"light-dark({color}, {in_the_dark(color)})"


@cache
def in_the_dark(color: str) -> str:
    parts = parts_of(color)
    is_gray = max(parts) - min(parts) < 13
    wanted = contrast(color, "#ffffff") if is_gray else max(ENOUGH, contrast(color, PAPER[1]))
    steps = lighter([0, 0, 0] if is_gray else parts)
    return next((mixed for mixed in steps if contrast(mixed, PAPER[1]) >= wanted), "#ffffff")


def shown(color: str) -> tuple[str, str]:
    "A color as the light and the dark theme show it."
    return {"#000000": INK, "#ffffff": PAPER}.get(color) or (color, in_the_dark(color))


def legible(color: str, ground: str) -> str:
    "The color itself, or what is like it and has enough contrast with the ground: darker or lighter, in the least."
    steps = (as_text([part + (end - part)*step/100 for part in parts_of(color)])
             for step in range(101) for end in (0, 255))
    return next(one for one in steps if contrast(one, ground) >= ENOUGH)


def lighter(start: list[int]) -> list[str]:
    "Colors from one, given as red, green and blue, step by step to white."
    return [as_text([part + (255 - part)*step/100 for part in start]) for step in range(101)]


def mixed(over: str, under: str, opacity: float) -> str:
    "What is seen where one color lies over another."
    return as_text([a*opacity + b*(1 - opacity) for a, b in zip(parts_of(over), parts_of(under))])


def parts_of(color: str) -> list[int]: return [int(color[i:i + 2], 16) for i in (1, 3, 5)]
def as_text(parts: list[float]) -> str: return "#" + "".join(f"{round(part):02x}" for part in parts)


def contrast(one: str, other: str) -> float:
    "How well two colors can be told apart, by the rule of WCAG: from 1 to 21."
    darker, brighter = sorted((luminance(one), luminance(other)))
    return (brighter + .05)/(darker + .05)


def luminance(color: str) -> float:
    parts = [part/255 for part in parts_of(color)]
    linear = [part/12.92 if part <= .04045 else ((part + .055)/1.055)**2.4 for part in parts]
    return .2126*linear[0] + .7152*linear[1] + .0722*linear[2]
