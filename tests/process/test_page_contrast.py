"""Whether a person sees the robot, its plan and its target, and can read each page: in a real browser."""

import io
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import trimesh
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from robot_runtime.page.body import Shape
from robot_runtime.page.picture import BROWSERS
from robot_runtime.page.scene import Scene, _add
from robot_runtime.page.state import PageState
from robot_runtime.page.view import view_of
from robot_runtime.page.web import PageServer

ROOT = Path(__file__).parents[2]
RUN, GUIDE = (ROOT / "robot_runtime" / "page" / "static" / name for name in ("index.html", "guide.html"))
SERVER = ROOT / "robot_runtime" / "server" / "static" / "server.html"
WEBXR = ROOT / "drivers" / "webxr" / "page.html"
LEAST_RATIO = 3.0
"""Of luminances, for what is no text: WCAG 2.2, 1.4.11."""
WHITE = (0.92, 0.92, 0.9, 1.0)


class NoRun:
    """A page without news."""

    def view(self) -> str:
        return json.dumps(view_of(PageState(), quiet_s=None))

    def pictures(self) -> dict:
        return {}

    def order(self, order: object) -> None: ...

    def play(self, told: object) -> None: ...

    def refuse(self, what: str, why: str) -> None: ...


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as started:
        yield started.chromium.launch(
            executable_path=f"/usr/bin/{BROWSERS[0]}",
            args=["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"],
        )


def luminance(rgb: np.ndarray) -> np.ndarray:
    """Relative, of sRGB (..., 3) from 0 to 255: WCAG 2.2."""
    share = rgb / 255.0
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def pixels(page: Page) -> np.ndarray:
    """The 3D view without what lies over it (H, W, 3)."""
    png = page.locator("#view").screenshot(timeout=120_000.0)
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), float)[60:-20, 20:-180]


def still(page: Page) -> np.ndarray:
    """The view once two looks in a row see the same."""
    deadline_s, last = time.monotonic() + 120.0, pixels(page)
    while time.monotonic() < deadline_s:
        time.sleep(0.5)
        now = pixels(page)
        if np.array_equal(now, last):
            return now
        last = now
    pytest.fail("the view has not come to rest in 120 s")


def ratio(before: np.ndarray, after: np.ndarray) -> float:
    """Of what is drawn now to what was there, over the pixels of its middle: edges are blended.

    0 as long as nothing new is drawn.
    """
    is_new = np.abs(after - before).max(axis=-1) > 12
    if is_new.sum() <= 50:
        return 0.0
    a, b = luminance(before[is_new]), luminance(after[is_new])
    return float(np.median((np.maximum(a, b) + 0.05) / (np.minimum(a, b) + 0.05)))


def contrast(page: Page, draw: Callable[[], object], remove: Callable[[], object]) -> float:
    """Of what is drawn, without and with it; again while it is too faint: the view brightens at first."""
    deadline_s, found = time.monotonic() + 120.0, 0.0
    while found < LEAST_RATIO and time.monotonic() < deadline_s:
        remove()
        before = still(page)
        draw()
        time.sleep(1.0)
        found = ratio(before, still(page))
    return found


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_robot_plan_and_target_stand_out_from_the_background(browser: Browser, scheme):
    line = np.linspace([-0.4, -0.5, 0.1], [-0.4, 0.5, 0.6], 20)
    box = trimesh.creation.box((0.25, 0.25, 0.6))
    robot = Shape(link="world", vertices=box.vertices, faces=box.faces, rgba=WHITE)
    with Scene(None) as scene, PageServer("127.0.0.1", 0, NoRun(), scene) as server:
        page = browser.new_page(viewport={"width": 1000, "height": 700}, color_scheme=scheme)
        page.goto(server.url)
        plan = {"hand/settled": line}
        both = {**plan, "hand/fresh": line + np.array([0.2, 0.0, 0.0])}
        world = scene._server.scene
        found = {
            "plan": contrast(page, lambda: scene.show_plan(plan), lambda: scene.show_plan({})),
            "target": contrast(page, lambda: scene.show_plan(both), lambda: scene.show_plan(plan)),
            "robot": contrast(
                page,
                lambda: _add(world, "/world/robot", robot),
                lambda: world.remove_by_name("/world/robot"),
            ),
        }
        page.close()
    assert min(found.values()) >= LEAST_RATIO, found


def without_code(file: Path) -> str:
    """A page with its styles, all of its parts shown, and none of its scripts."""
    html = re.sub(r"<script.*?</script>", "", file.read_text(), flags=re.DOTALL)
    html = re.sub(
        r'<link rel="stylesheet" href="(.*?)">',
        lambda m: f"<style>{(file.parent / m[1]).read_text()}</style>",
        html,
    )
    html = re.sub(r"</?template.*?>", "", html)
    return re.sub(r"(<[^>]*?) hidden(?=[ >])", r"\1", html)


HARD_TO_READ = """() => {
  const parse = (text) => {
    const n = text.match(/[\\d.]+/g).map(Number), scale = text.startsWith("color(") ? 255 : 1;
    return [n[0] * scale, n[1] * scale, n[2] * scale, n[3] ?? 1];
  };
  const over = (top, under) => top.slice(0, 3).map((c, i) => c * top[3] + under[i] * (1 - top[3]));
  const luminance = (rgb) => {
    const part = (v) => v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(rgb[0]) + 0.7152 * part(rgb[1]) + 0.0722 * part(rgb[2]);
  };
  const behind = (e) => {
    const layers = [];
    for (; e; e = e.parentElement) layers.unshift(parse(getComputedStyle(e).backgroundColor));
    return layers.reduce((under, layer) => over(layer, under), [255, 255, 255]);
  };
  const found = [];
  for (const e of document.querySelectorAll("body, body *")) {
    const text = [...e.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim()).join("");
    const style = getComputedStyle(e);
    if (!text || style.visibility === "hidden" || !e.getClientRects().length) continue;
    const size = parseFloat(style.fontSize), isBold = +style.fontWeight >= 700;
    const least = size >= 24 || (isBold && size >= 18.66) ? 3.0 : 4.5;
    const back = behind(e);
    const [a, b] = [luminance(over(parse(style.color), back)), luminance(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), what = e.id || e.className || e.tagName;
    if (ratio < least) found.push(`${document.body.className}: ${what} "${text}" ${ratio} < ${least}`);
  }
  return found;
}"""
"""Texts that are too faint before what lies behind them: WCAG 2.2, 1.4.3 (4.5, of large ones 3)."""
STATES = {
    RUN: ("waiting", "run", "hold", "halted", "recorded", "over"),
    GUIDE: ("", "usable", "refused", "over"),
    SERVER: ("",),
    WEBXR: ("", "ar"),
}
ADDED = {
    RUN: {
        "#parts tbody": "".join(
            f'<tr><td>arm</td><td><span class="by {who}">{who}</span> <span class="phase">correct</span></td>'
            "<td><button>Take over</button></td></tr>"
            for who in ("POLICY", "HUMAN", "SCRIPTED", "SAFETY", "HOLD")
        ),
        "#lines": '<li><time>1.0</time>a line</li><li class="loud"><time>1.0</time>a warning</li>',
        "#numbers": "<span>late</span><span>1.0</span>",
        "#answer": "an answer",
        "#banner": "no news",
        "#task-now": "a task",
        "#who": "a policy",
        "#cameras": '<figure><figcaption>chest</figcaption></figure><figure class="old">'
        "<figcaption>wrist</figcaption></figure>",
    },
    GUIDE: {
        "#marks": '<li class="there"><b>left</b><span>12°</span></li><li><b>right</b><span>3°</span></li>',
        "#marks-name": "tilts",
        "#gauges": '<div class="gauge"><b>board</b><span>0.3</span></div>',
        "#reasons": '<li class="fatal"><b>too few</b>views</li>',
        "#rows": "<tr><td>focal length</td><td>612</td></tr>",
        "#title": "camera.json",
        "#wanted": "/ 25",
        "#problem": "too dark",
    },
    SERVER: {
        ".robots tbody": '<tr><td class="late">3 s</td><td class="now runs">runs</td></tr>'
        '<tr><td>3 s</td><td class="now waits">waits</td></tr>',
        ".outcomes tbody": "<tr><td>done</td><td>3</td></tr>",
        ".figures": "<div><b>3</b><small>robots</small></div>",
        ".name": "fetch",
        ".ready": "warm",
        "#gpus": "no GPU",
    },
    WEBXR: {"#note": "drive"},
}
"""What the pages' code adds, by selector."""
CLASSES = {
    WEBXR: ("#state", ("leads", "held", "no")),
    SERVER: (".ready", ("yes",)),
    RUN: ("#answer", ("refused",)),
}


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("file", STATES, ids=lambda file: file.stem)
def test_each_text_of_a_page_can_be_read_in_each_of_its_states(browser: Browser, file: Path, scheme: str):
    page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme=scheme)
    page.set_content(without_code(file))
    for selector, html in ADDED[file].items():
        page.eval_on_selector(selector, "(e, html) => { e.innerHTML = html; }", html)
    page.add_style_tag(content="* { transition: none !important; }")
    found = []
    selector, classes = CLASSES.get(file, ("body", ()))
    for state in STATES[file]:
        page.eval_on_selector("body", "(e, state) => { e.className = state; }", state)
        found += page.evaluate(HARD_TO_READ)
    for name in classes:
        page.eval_on_selector(selector, "(e, name) => { e.classList.add(name); }", name)
        found += page.evaluate(HARD_TO_READ)
        page.eval_on_selector(selector, "(e, name) => { e.classList.remove(name); }", name)
    page.close()
    assert found == [], "\n".join(found)
