"""Fits the figures of the notebooks, SVG on white, to the site: its font, and colors for both themes."""
import base64
import io
import re
from functools import cache
from xml.etree import ElementTree

from PIL import Image  # which matplotlib draws with
from site_colours import COLOR, in_both
from site_labels import ink_labels, moved

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
TRANSLATED = re.compile(r"translate\((?P<x>\S+) (?P<y>\S+)\)")
SCALED = re.compile(r"calc\((\S+)\*var\(--label, 1\)\)")
SIZE = re.compile(r"(?<=font-size: )([\d.]+px)")  # where a figure is drawn larger, its labels need not grow with it
REFERENCE = re.compile(r"(?<=url\(#)[^)]+")
EMBEDDED = re.compile(r"(data:image/png;base64,)(.+)", re.S)
for name, address in {"": SVG, "xlink": XLINK}.items(): ElementTree.register_namespace(name, address)


def fitted(svg: str, number: int) -> str:
    "The figure as it is put into a page, of which it is figure `number`: no other has its ids."
    root = ElementTree.fromstring(svg)
    root.remove(root.find(f"{{{SVG}}}metadata"))
    for parent in [*root.iter(f"{{{SVG}}}defs")]:  # rules for a whole page, though they are meant for the figure
        for rules in parent.findall(f"{{{SVG}}}style"): parent.remove(rules)
    drop_ground(root)
    name_ids(root, f"f{number}-")
    for picture in root.iter(f"{{{SVG}}}image"):
        place = next(name for name in ("href", f"{{{XLINK}}}href") if name in picture.attrib)
        picture.set(place, EMBEDDED.sub(lambda found: found[1] + smaller(found[2]), picture.get(place)))
    ink_labels(root)
    boxes = {tag: box for group in axes_of(root) if (box := picture_box(group)) for tag in group.iter()}
    for tag in root.iter(): style(tag, boxes.get(tag))
    keep_lines_centered(root)
    width, height = root.get("viewBox").split()[2:]
    root.attrib |= {"width": in_pixels(width), "height": in_pixels(height), "class": "plot", "data-figure": str(number),
                    "font-family": "sans-serif",  # the page's own comes from nbs/assets/site.css
                    "stroke-linejoin": "round", "style": f"fill: {in_both('#000000')}"}
    return ElementTree.tostring(root, encoding="unicode")


@cache
def smaller(encoded: str) -> str:
    "A PNG in base64, with the same pixels in fewer bytes: no idle alpha, and a palette if there can be one."
    data = base64.b64decode(encoded)
    picture = Image.open(io.BytesIO(data))
    if picture.mode == "RGBA" and picture.getextrema()[3] == (255, 255): picture = picture.convert("RGB")
    ways = [picture]
    if picture.mode == "RGB" and (colors := picture.getcolors(256)):
        indexed = picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=len(colors))
        if indexed.convert("RGB").tobytes() == picture.tobytes(): ways.append(indexed)
    found = [data]
    for way in ways:
        way.save(file := io.BytesIO(), "PNG", optimize=True)
        found.append(file.getvalue())
    return base64.b64encode(min(found, key=len)).decode()


def in_pixels(points: str) -> str: return f"{float(points)*4/3:.0f}"


def drop_ground(root: ElementTree.Element):
    "Takes out the white sheet behind everything, so that the page's own ground shows through."
    whole = root.find(f"{{{SVG}}}g[@id='figure_1']")
    if whole is not None and (sheet := whole.find(f"{{{SVG}}}g[@id='patch_1']")) is not None: whole.remove(sheet)


def name_ids(root: ElementTree.Element, prefix: str):
    "Gives the ids that are used in this figure names of its own, and drops the others."
    used = {link[1:] for tag in root.iter() if (link := tag.get(f"{{{XLINK}}}href", "")).startswith("#")}
    used |= {name for tag in root.iter() for value in tag.attrib.values() for name in REFERENCE.findall(value)}
    names = {name: f"{prefix}{n}" for n, name in enumerate(sorted(used), 1)}
    for tag in root.iter():
        name = tag.attrib.get("id")
        if name in names: tag.set("id", names[name])
        elif name and not name.startswith("axes_"): del tag.attrib["id"]
        for key, value in tag.attrib.items():
            if key == f"{{{XLINK}}}href" and value[1:] in names: tag.set(key, "#" + names[value[1:]])
            elif "url(#" in value: tag.set(key, REFERENCE.sub(lambda name: names[name[0]], value))


def axes_of(root: ElementTree.Element) -> list[ElementTree.Element]:
    "The groups of the figure that hold one pair of axes each."
    found = [tag for tag in root.iter(f"{{{SVG}}}g") if tag.get("id", "").startswith("axes_")]
    for tag in found: del tag.attrib["id"]
    return found


def picture_box(axes: ElementTree.Element) -> tuple[float, float, float, float] | None:
    "Where the axes show a picture: left, top, right, bottom."
    picture = axes.find(f".//{{{SVG}}}image")
    if picture is None: return None
    x, y, width, height = (float(picture.get(name, 0)) for name in ("x", "y", "width", "height"))
    corners = [moved(corner, picture.get("transform", "")) for corner in ((x, y), (x + width, y + height))]
    (left, right), (top, bottom) = map(sorted, zip(*corners))
    return left, top, right, bottom


def keep_lines_centered(root: ElementTree.Element):
    """Puts each line of a label of several into a group, which the stylesheet makes smaller around its middle: the
    lines begin at places that were computed for their full size."""
    for group in [*root.iter(f"{{{SVG}}}g")]:
        lines = [(n, tag) for n, tag in enumerate(group) if tag.tag == f"{{{SVG}}}text"]
        starts = [TRANSLATED.match(tag.get("transform", "")) for _, tag in lines]
        if len(lines) < 2 or None in starts: continue
        turned = "rotate(-90" in lines[0][1].get("transform")
        if len({start["y" if turned else "x"] for start in starts}) == 1: continue  # aligned where they begin
        for n, line in lines:
            line.set("style", SCALED.sub(r"\1", line.get("style")))
            group[n] = ElementTree.Element(f"{{{SVG}}}g", {"class": "line"})
            group[n].append(line)


def is_within(text: ElementTree.Element, box: tuple[float, float, float, float]) -> bool:
    if "x" in text.attrib: x, y = float(text.get("x")), float(text.get("y"))
    else: x, y = moved((0, 0), text.get("transform", ""))
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def style(tag: ElementTree.Element, box: tuple | None):
    "Colors and font of one element. What is drawn on a picture keeps its colors, as the picture does."
    text = re.sub(r" ?font-family: [^;]*;?", "", tag.get("style", "")).rstrip("; ")
    text = SIZE.sub(r"calc(\1*var(--label, 1))", text)
    if box and tag.tag == f"{{{SVG}}}text" and is_within(tag, box):
        if "fill:" not in text: text += "; fill: #000000"
    elif "light-dark(" not in text: text = COLOR.sub(lambda color: in_both(color[0]), text)
    if text: tag.set("style", text)
