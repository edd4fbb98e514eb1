"""Whether a page that a browser shows can be read: nothing sticks out to the side, and text stands off its ground."""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.support.browser import Browser

READABLE: Final = 4.5
"""WCAG 2.2, 1.4.3: the least contrast of text."""

_OVERFLOW: Final = """
(() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  return [...document.body.querySelectorAll('*')]
    .filter(one => one.getBoundingClientRect().right > width + 0.5)
    .map(one => `${one.localName} ${one.className.baseVal ?? one.className}: ${one.textContent.slice(0, 60)}`);
})()
"""

_CONTRASTS: Final = """
(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const painted = layers => {
    canvas.clearRect(0, 0, 1, 1);
    for (const [colour, alpha] of layers) {
      canvas.globalAlpha = alpha; canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const linear = one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
  const light = rgb => rgb.map(one => linear(one / 255))
    .reduce((sum, one, index) => sum + one * [0.2126, 0.7152, 0.0722][index], 0);
  const probe = document.documentElement.appendChild(document.createElement('div'));
  probe.style.backgroundColor = 'Canvas';
  const ground = getComputedStyle(probe).backgroundColor;
  probe.remove();
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim(), element = walker.currentNode.parentElement;
    if (!text || ['title', 'script', 'style'].includes(element.localName)) continue;
    const above = [];
    for (let one = element; one; one = one.parentElement) above.unshift(getComputedStyle(one));
    const own = above.at(-1), opacity = above.reduce((product, one) => product * one.opacity, 1);
    const layers = [[ground, 1], ...above.map(one => [one.backgroundColor, 1])];
    const inked = [...layers, [element.closest('svg') ? own.fill : own.color, opacity]];
    const [dark, bright] = [light(painted(layers)), light(painted(inked))].sort((a, b) => a - b);
    found.push([text.slice(0, 60), (bright + 0.05) / (dark + 0.05)]);
  }
  return found;
})()
"""


class Contrast(NamedTuple):
    text: str
    ratio: float


def overflow(browser: Browser) -> list[str]:
    """What sticks out to the right, if the page can be moved sideways."""
    found: list[str] = browser.ask(_OVERFLOW)
    return found


def contrasts(browser: Browser) -> list[Contrast]:
    """Of every text with what is behind it."""
    return [Contrast(text, ratio) for text, ratio in browser.ask(_CONTRASTS)]
