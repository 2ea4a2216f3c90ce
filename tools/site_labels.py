"""The colors of the labels of figures: each can be read on what lies below it, in both themes."""
import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

from site_colours import COLOR, ENOUGH, INK, PAPER, contrast, legible, mixed, shown

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
STEP = re.compile(rf"([MLHVQCz])((?:\s*{NUMBER})*)", re.I)
LETTER = 0.55  # the width of a letter, in sizes of the font

Point, Outline = tuple[float, float], list[list[tuple[float, float]]]


@dataclass
class Shape:
    "What lies below a label: its outline, where it is cut off, and its color in the light and in the dark theme."
    outline: Outline
    window: Outline
    colors: tuple[str, str] | None  # of a picture None
    opacity: float = 1.

    def has(self, point: Point) -> bool:
        return is_within(point, self.outline) and (not self.window or is_within(point, self.window))


def is_within(point: Point, outline: Outline) -> bool:
    "A line from the point to the left crosses the outline an odd number of times."
    (x, y), crossed = point, 0
    for corners in outline:
        for a, b in zip(corners, [*corners[1:], corners[0]]):
            crossed += (a[1] > y) != (b[1] > y) and x > a[0] + (y - a[1])/(b[1] - a[1])*(b[0] - a[0])
    return crossed%2 == 1


def ink_labels(root: ElementTree.Element):
    "Changes the colors of labels that could not be read. A label on a picture keeps its color, as the picture does."
    paths = {tag.get("id"): outline_of(tag.get("d", "")) for tag in root.iter(f"{{{SVG}}}path")}
    windows = {tag.get("id"): rectangle(tag[0]) for tag in root.iter(f"{{{SVG}}}clipPath")}
    shapes = []
    for tag in drawn(root):
        if tag.tag == f"{{{SVG}}}text":
            at = middle(tag)
            ink(tag, [shape for shape in shapes if shape.has(at)])
        elif shape := shape_of(tag, paths, windows): shapes.append(shape)


def drawn(tag: ElementTree.Element) -> Iterator[ElementTree.Element]:
    "What is drawn, in its order. Definitions are not, until they are used."
    if tag.tag in (f"{{{SVG}}}defs", f"{{{SVG}}}clipPath"): return
    yield tag
    for child in tag: yield from drawn(child)


def declared(tag: ElementTree.Element, name: str, otherwise: str) -> str:
    found = re.search(rf"(?:^|[;\s]){name}: *([^;]+)", tag.get("style", ""))
    return found[1].strip() if found else tag.get(name, otherwise)


def shape_of(tag: ElementTree.Element, paths: dict[str, Outline], windows: dict[str, Outline]) -> Shape | None:
    "The shape that an element fills, if it does."
    window = windows.get(tag.get("clip-path", "")[5:-1], [])  # url(#…)
    if tag.tag == f"{{{SVG}}}image": return Shape(picture(tag), window, None)
    if tag.tag == f"{{{SVG}}}path": outline, (x, y) = outline_of(tag.get("d", "")), (0, 0)
    elif tag.tag == f"{{{SVG}}}use":
        outline, x, y = paths.get(tag.get(f"{{{XLINK}}}href", "")[1:], []), *(float(tag.get(name, 0)) for name in "xy")
    else: return None
    color = declared(tag, "fill", "#000000")
    opacity = float(declared(tag, "opacity", "1"))*float(declared(tag, "fill-opacity", "1"))
    if not (COLOR.fullmatch(color) and opacity): return None
    return Shape([[(x + a, y + b) for a, b in corners] for corners in outline], window, shown(color), opacity)


def outline_of(path: str) -> Outline:
    "The corners that each part of a path leads through, without the points that only bend it."
    parts = []
    for letter, text in STEP.findall(path):
        numbers = [float(number) for number in re.findall(NUMBER, text)]
        if letter == "M": parts.append([])
        if letter == "H": parts[-1].append((numbers[0], parts[-1][-1][1]))
        elif letter == "V": parts[-1].append((parts[-1][-1][0], numbers[0]))
        elif numbers: parts[-1].append(tuple(numbers[-2:]))
    return parts


def rectangle(tag: ElementTree.Element) -> Outline:
    if tag.tag == f"{{{SVG}}}path": return outline_of(tag.get("d", ""))
    x, y, width, height = (float(tag.get(name, 0)) for name in ("x", "y", "width", "height"))
    return [[(x, y), (x + width, y), (x + width, y + height), (x, y + height)]]


def picture(tag: ElementTree.Element) -> Outline:
    return [[moved(corner, tag.get("transform", "")) for corner in rectangle(tag)[0]]]


def moved(point: Point, transform: str) -> Point:
    "Where a point is after the steps of an SVG `transform`, of which the last is taken first."
    x, y = point
    for step, text in reversed(re.findall(r"(\w+)\(([^)]*)\)", transform)):
        numbers = [float(number) for number in re.findall(NUMBER, text)]
        if step == "translate": x, y = x + numbers[0], y + numbers[1]
        elif step == "scale": x, y = x*numbers[0], y*numbers[-1]
        elif step == "matrix": x, y = (numbers[i]*x + numbers[i + 2]*y + numbers[i + 4] for i in (0, 1))
    return x, y


def middle(text: ElementTree.Element) -> Point:
    "Where the middle of a label is, about."
    size, transform = float(re.sub("px|pt", "", declared(text, "font-size", "10"))), text.get("transform", "")
    wide, up = LETTER*size*len("".join(text.itertext())), 0.35*size
    along = {"middle": 0, "end": -wide/2}.get(declared(text, "text-anchor", "start"), wide/2)
    x, y = moved((float(text.get("x", 0)), float(text.get("y", 0))), transform)
    turned = re.search(rf"rotate\(({NUMBER})", transform)
    upwards = turned and 45 < abs(float(turned[1])) < 135
    return (x - up, y - along) if upwards else (x + along, y - up)


def ink(text: ElementTree.Element, below: list[Shape]):
    "Gives a label that lies on shapes, the first of them undermost, a color for each theme, if it needs them."
    own = declared(text, "fill", "#000000")
    if not COLOR.fullmatch(own) or any(shape.colors is None for shape in below): return
    inks = []
    for theme, color in enumerate(shown(own)):
        ground = PAPER[theme]
        for shape in below: ground = mixed(shape.colors[theme], ground, shape.opacity)
        without_hue = (color, INK[0], PAPER[0], "#000000", "#ffffff")  # of the last two, one is always legible
        if own not in ("#000000", "#ffffff"): inks.append(legible(color, ground))
        else: inks.append(next(one for one in without_hue if contrast(one, ground) >= ENOUGH))
    if tuple(inks) == shown(own): return
    style = re.sub(r"(?:^|(?<=[;\s]))fill: *[^;]+;?", "", text.get("style", "")).strip("; ")
    text.set("style", f"{style}; fill: light-dark({inks[0]}, {inks[1]})")
