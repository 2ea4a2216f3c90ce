"""Colours that were chosen for white paper, in both themes of the site."""
import re
from functools import cache

# ink and paper of the light and of the dark theme, as in nbs/assets/site.css
INK, PAPER = ("#22282d", "#dde3e6"), ("#fdfcfa", "#15191c")
ENOUGH = 4.5  # contrast that a coloured line needs on the dark ground, and a label on its shape
COLOUR = re.compile(r"#[0-9a-f]{6}\b")


@cache
def in_both(colour: str) -> str:
    """CSS for a colour that was chosen for white. Greys keep their contrast with the ground; other colours become
    lighter on the dark one where they would be hard to see."""
    if colour == "#000000": return f"var(--ink, {colour})"
    if colour == "#ffffff": return f"var(--paper, {colour})"
    return f"light-dark({colour}, {in_the_dark(colour)})"


@cache
def in_the_dark(colour: str) -> str:
    parts = parts_of(colour)
    is_grey = max(parts) - min(parts) < 13
    wanted = contrast(colour, "#ffffff") if is_grey else max(ENOUGH, contrast(colour, PAPER[1]))
    steps = lighter([0, 0, 0] if is_grey else parts)
    return next((mixed for mixed in steps if contrast(mixed, PAPER[1]) >= wanted), "#ffffff")


def shown(colour: str) -> tuple[str, str]:
    "A colour as the light and the dark theme show it."
    return {"#000000": INK, "#ffffff": PAPER}.get(colour) or (colour, in_the_dark(colour))


def legible(colour: str, ground: str) -> str:
    "The colour itself, or what is like it and has enough contrast with the ground: darker or lighter, in the least."
    steps = (as_text([part + (end - part)*step/100 for part in parts_of(colour)])
             for step in range(101) for end in (0, 255))
    return next(one for one in steps if contrast(one, ground) >= ENOUGH)


def lighter(start: list[int]) -> list[str]:
    "Colours from one, given as red, green and blue, step by step to white."
    return [as_text([part + (255 - part)*step/100 for part in start]) for step in range(101)]


def mixed(over: str, under: str, opacity: float) -> str:
    "What is seen where one colour lies over another."
    return as_text([a*opacity + b*(1 - opacity) for a, b in zip(parts_of(over), parts_of(under))])


def parts_of(colour: str) -> list[int]: return [int(colour[i:i + 2], 16) for i in (1, 3, 5)]
def as_text(parts: list[float]) -> str: return "#" + "".join(f"{round(part):02x}" for part in parts)


def contrast(one: str, other: str) -> float:
    "How well two colours can be told apart, by the rule of WCAG: from 1 to 21."
    darker, brighter = sorted((luminance(one), luminance(other)))
    return (brighter + .05)/(darker + .05)


def luminance(colour: str) -> float:
    parts = [part/255 for part in parts_of(colour)]
    linear = [part/12.92 if part <= .04045 else ((part + .055)/1.055)**2.4 for part in parts]
    return .2126*linear[0] + .7152*linear[1] + .0722*linear[2]
