"""What a matplotlib figure shows, as data: lines, points, bars, pies and boxes, with titles, labels
and ticks. The names are those that E2B's clients declare."""
import datetime
import re

import numpy
from matplotlib import category, dates
from matplotlib.collections import PathCollection
from matplotlib.container import BarContainer
from matplotlib.patches import PathPatch, Wedge

POINTS_MAX = 100_000  # of a figure; one with more has its picture only


class TooMuch(Exception):
    pass


def number(value):
    value = float(value)
    if not numpy.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def plain(value):
    if isinstance(value, numpy.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, (datetime.date, datetime.datetime)) or hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, str):
        return value
    try:
        return number(value)
    except (TypeError, ValueError):
        return str(value)


def text(value):
    return value or None


def unit_of(label):
    """What stands in brackets at the end: "Time (s)" is in s."""
    found = re.search(r"[(\[]([^()\[\]]+)[)\]]\s*$", label or "")
    return found.group(1).strip() if found else None


# ---- axes ----------------------------------------------------------------------------------------


def axis_kind(axis):
    converter = getattr(axis, "get_converter", lambda: getattr(axis, "converter", None))()
    if isinstance(converter, category.StrCategoryConverter) or isinstance(
        getattr(axis, "units", None), category.UnitData
    ):
        return "categorical"
    if isinstance(converter, dates.DateConverter) or "Date" in type(converter).__name__:
        return "datetime"
    if "Date" in type(axis.get_major_formatter()).__name__:
        return "datetime"
    return axis.get_scale()


def tick_texts(axis):
    """Positions that are in view, with what is written there."""
    low, high = sorted(axis.get_view_interval())
    where = [float(t) for t in axis.get_majorticklocs()]
    words = axis.get_major_formatter().format_ticks(where) if where else []
    return [(t, w) for t, w in zip(where, words) if low - 1e-9 <= t <= high + 1e-9]


def axis_fields(axis, prefix):
    kind = axis_kind(axis)
    ticks = tick_texts(axis)
    if kind == "categorical":
        values = [w for _, w in ticks]
    elif kind == "datetime":
        values = [date_text(t, axis) for t, _ in ticks]
    else:
        values = [number(t) for t, _ in ticks]
    return {
        f"{prefix}_ticks": values,
        f"{prefix}_tick_labels": [w.replace("\N{MINUS SIGN}", "-") for _, w in ticks],
        f"{prefix}_scale": kind,
    }


def date_text(value, axis):
    converter = getattr(axis, "get_converter", lambda: getattr(axis, "converter", None))()
    if converter is not None and "pandas" in type(converter).__module__:
        try:
            import pandas

            if getattr(axis, "freq", None) is not None:
                return pandas.Period(ordinal=int(value), freq=axis.freq).start_time.isoformat()
        except Exception:
            return str(value)
    return dates.num2date(value).replace(tzinfo=None).isoformat()


def place_name(axis, where):
    """What is written at a position of an axis; else the position."""
    for tick, word in tick_texts(axis):
        if word and abs(tick - where) < 1e-6:
            return word
    if axis_kind(axis) == "datetime":
        return date_text(where, axis)
    value = number(where)
    return str(value) if isinstance(value, int) else f"{where:.6g}"


def frame(ax, kind):
    return {
        "type": kind,
        "title": text(ax.get_title() or ax.get_title("left") or ax.get_title("right")),
        "x_label": text(ax.get_xlabel()),
        "y_label": text(ax.get_ylabel()),
        "x_unit": unit_of(ax.get_xlabel()),
        "y_unit": unit_of(ax.get_ylabel()),
    }


def label_of(artist, fallback):
    label = str(artist.get_label() or "")
    return fallback if not label or label.startswith("_") else label


# ---- kinds ---------------------------------------------------------------------------------------


def point_values(values, axis):
    kind = axis_kind(axis)
    if kind == "datetime":
        return [date_text(v, axis) if isinstance(v, (float, int, numpy.number)) else plain(v) for v in values]
    if kind == "categorical" and len(values) and not isinstance(values[0], str):
        names = {v: k for k, v in getattr(axis.units, "_mapping", {}).items()}
        return [names.get(int(round(v)), plain(v)) if numpy.isfinite(v) else None for v in values]
    return [plain(v) for v in values]


def pairs(ax, xs, ys, room):
    if len(xs) > room[0]:
        raise TooMuch
    room[0] -= len(xs)
    return [list(p) for p in zip(point_values(xs, ax.xaxis), point_values(ys, ax.yaxis))]


def points_chart(ax, kind, elements):
    return {**frame(ax, kind), **axis_fields(ax.xaxis, "x"), **axis_fields(ax.yaxis, "y"), "elements": elements}


def line_chart(ax, lines, room):
    elements = []
    for i, line in enumerate(lines):
        xs = numpy.atleast_1d(numpy.asarray(line.get_xdata(orig=True)))
        ys = numpy.atleast_1d(numpy.asarray(line.get_ydata(orig=True)))
        if len(xs) != len(ys):
            xs, ys = line.get_xdata(orig=False), line.get_ydata(orig=False)
        elements.append({"label": label_of(line, f"Line {i}"), "points": pairs(ax, xs, ys, room)})
    return points_chart(ax, "line", elements)


def scatter_chart(ax, collections, room):
    elements = []
    for i, c in enumerate(collections):
        offsets = numpy.ma.filled(numpy.ma.asarray(c.get_offsets(), dtype=float), numpy.nan)
        points = pairs(ax, offsets[:, 0], offsets[:, 1], room) if len(offsets) else []
        elements.append({"label": label_of(c, f"Dataset {i}"), "points": points})
    return points_chart(ax, "scatter", elements)


def bar_chart(ax, containers, room):
    elements = []
    for i, container in enumerate(containers):
        group = label_of(container, f"Group {i}")
        flat = getattr(container, "orientation", "vertical") == "horizontal"
        axis = ax.yaxis if flat else ax.xaxis
        if len(container.patches) > room[0]:
            raise TooMuch
        room[0] -= len(container.patches)
        for bar in container.patches:
            middle = bar.get_y() + bar.get_height() / 2 if flat else bar.get_x() + bar.get_width() / 2
            edge = bar.get_y() if flat else bar.get_x()
            elements.append(
                {
                    "label": bar_name(axis, middle, edge),
                    "group": group,
                    "value": number(bar.get_width() if flat else bar.get_height()),
                }
            )
    return {**frame(ax, "bar"), "elements": elements}


def bar_name(axis, middle, edge):
    """Bars stand on a tick, beside a tick that has a name (groups), or begin at one (align="edge")."""
    ticks = [(t, w) for t, w in tick_texts(axis) if w]
    for tick, word in ticks:
        if abs(tick - middle) < 1e-6:
            return word
    named = [(t, w) for t, w in ticks if not is_number(w)]
    if named:
        tick, word = min(named, key=lambda n: abs(n[0] - middle))
        if abs(tick - middle) < 0.5 and axis_kind(axis) != "datetime":
            return word
    for tick, word in ticks:
        if abs(tick - edge) < 1e-6:
            return word
    return place_name(axis, middle)


def is_number(word):
    try:
        float(word.replace("\N{MINUS SIGN}", "-"))
        return True
    except ValueError:
        return False


def pie_chart(ax, wedges):
    return {
        "type": "pie",
        "title": text(ax.get_title()),
        "elements": [
            {
                "label": label_of(w, str(i)),
                "angle": number(round(abs(w.theta2 - w.theta1), 4)),
                "radius": number(w.r),
            }
            for i, w in enumerate(wedges)
        ],
    }


# ---- boxes: matplotlib draws them of lines, and keeps no word of what they were ---------------------


def rectangle(xs, ys):
    """(x0, x1, y0, y1) of a closed path of right angles, else None."""
    if not 5 <= len(xs) <= 6 or xs[0] != xs[4] or ys[0] != ys[4]:
        return None
    if len({float(x) for x in xs[:5]}) != 2 or len({float(y) for y in ys[:5]}) != 2:
        return None
    return min(xs[:5]), max(xs[:5]), min(ys[:5]), max(ys[:5])


def boxes_of(ax):
    found = []
    for line in ax.lines:
        xs, ys = (numpy.asarray(d, dtype=float) for d in line.get_data(orig=False))
        box = rectangle(xs, ys)
        if box:
            found.append(box)
    for patch in ax.patches:
        if isinstance(patch, PathPatch):
            v = patch.get_path().vertices
            box = rectangle(v[:, 0], v[:, 1])
            if box:
                found.append(box)
    return found


def near(a, b):
    return abs(a - b) <= 1e-6 * max(1.0, abs(a), abs(b))


def box_parts(box, lines, flat):
    """Median, whisker ends and outliers of one box; None: it is none."""
    x0, x1, low, high = (box[2], box[3], box[0], box[1]) if flat else box
    middle = (x0 + x1) / 2
    median, ends, outliers = None, [low, high], []
    whiskers = 0
    for across, along, is_point in lines:
        if not len(across):
            continue
        if is_point:
            if all(near(a, middle) for a in across):
                outliers += [number(v) for v in along]
        elif len(across) == 2 and near(across[0], middle) and near(across[1], middle):
            whiskers += 1
            ends += [along[0], along[1]]
        elif len(across) == 2 and near(along[0], along[1]) and low <= along[0] <= high:
            if near(min(across), x0) and near(max(across), x1):
                median = along[0]
    if median is None or whiskers < 2:
        return None
    return middle, {
        "min": number(min(ends)),
        "first_quartile": number(low),
        "median": number(median),
        "third_quartile": number(high),
        "max": number(max(ends)),
        "outliers": outliers,
    }


def box_chart(ax):
    boxes = boxes_of(ax)
    if not boxes:
        return None
    for flat in (False, True):
        lines = []
        for line in ax.lines:
            xs, ys = (numpy.asarray(d, dtype=float) for d in line.get_data(orig=False))
            point = line.get_linestyle() in ("None", "none", "", " ")
            lines.append((ys, xs, point) if flat else (xs, ys, point))
        parts = [box_parts(b, lines, flat) for b in boxes]
        if all(parts):
            axis = ax.yaxis if flat else ax.xaxis
            elements = [{"label": place_name(axis, middle), **values} for middle, values in parts]
            return {**frame(ax, "box_and_whisker"), "elements": elements}
    return None


# ---- all of it -----------------------------------------------------------------------------------


def axes_chart(ax, room):
    wedges = [p for p in ax.patches if isinstance(p, Wedge)]
    if wedges:
        return pie_chart(ax, wedges)
    boxes = box_chart(ax)
    if boxes:
        return boxes
    bars = [c for c in ax.containers if isinstance(c, BarContainer) and c.patches]
    if bars:
        return bar_chart(ax, bars, room)
    scatters = [c for c in ax.collections if isinstance(c, PathCollection)]
    lines = [line for line in ax.lines if len(line.get_xdata())]
    if scatters and not lines:
        return scatter_chart(ax, scatters, room)
    if lines:
        return line_chart(ax, lines, room)
    if not ax.has_data():
        return None
    return {**frame(ax, "unknown"), "elements": []}


def figure_chart(figure):
    room = [POINTS_MAX]
    try:
        charts = [c for c in (axes_chart(ax, room) for ax in figure.get_axes()) if c]
    except TooMuch:
        return None
    if not charts:
        return None
    title = text(figure._suptitle.get_text()) if getattr(figure, "_suptitle", None) else None
    if len(charts) == 1:
        charts[0]["title"] = charts[0]["title"] or title
        return charts[0]
    return {"type": "superchart", "title": title, "elements": charts}
