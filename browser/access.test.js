// Pages work by keyboard alone, and axe finds nothing wrong with them.
import { AxeBuilder } from "@axe-core/playwright";
import assert from "node:assert/strict";
import { test } from "node:test";
import { open, PAGES } from "./browser.js";

for (const scheme of ["light", "dark"]) {
  for (const name of PAGES) {
    test(`axe finds nothing on ${name}, ${scheme}`, () =>
      open(name, async (page) => {
        // Details of a kernel are part of the page.
        const box = page.locator(".box[data-group]").first();
        if (await box.count()) await box.click();
        const axe = new AxeBuilder({ page }).setLegacyMode();
        // The contrast of thousands of equal boxes takes minutes, and the small pages have the same colours.
        if (name === "large") axe.disableRules("color-contrast");
        const { violations } = await axe.analyze();
        const reasons = (node) => [...node.any, ...node.all].map((check) => check.message).join("; ");
        const found = violations.flatMap((one) => [
          `${one.id}: ${one.help}`,
          ...one.nodes.slice(0, 4).map((node) => `  ${node.html.slice(0, 200)}: ${reasons(node)}`),
        ]);
        assert.equal(violations.length, 0, found.join("\n"));
      }, { colorScheme: scheme }));
  }
}

/** What a reader can do something with, without what is folded. */
const STOPS = "button, input, select, summary, a[href], [tabindex='0']";

for (const name of ["explain", "segments", "profile_fixed", "passes", "tour"]) {
  test(`the tab key reaches everything on ${name}, in order and visibly`, () =>
    open(name, async (page) => {
      const expected = await page.evaluate((stops) => {
        const all = [...document.querySelectorAll(stops)].filter((one) => one.checkVisibility() && !one.disabled);
        all.forEach((one, at) => { one.dataset.stop = at; });
        return all.length;
      }, STOPS);
      assert.ok(expected > 1);
      for (let stop = 0; stop < expected; stop += 1) {
        await page.keyboard.press("Tab");
        const focus = await page.evaluate(() => {
          const one = document.activeElement;
          const shape = one.querySelector(":scope > rect") ?? one;
          const [style, shown] = [getComputedStyle(one), getComputedStyle(shape)];
          const is_seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2
            || shape !== one && parseFloat(shown.strokeWidth) >= 3;
          return { stop: one.dataset.stop, what: one.outerHTML.slice(0, 120), is_seen };
        });
        assert.equal(focus.stop, String(stop), `stop ${stop} of ${expected} is ${focus.what}`);
        assert.ok(focus.is_seen, `the focus is not seen: ${focus.what}`);
      }
    }));
}

test("arrow keys go through the boxes of a graph, and Enter shows a kernel", () =>
  open("explain", async (page) => {
    const boxes = page.locator(".report").first().locator(".box[data-group]");
    await boxes.first().focus();
    const at = () => page.evaluate(() => document.activeElement.querySelector("rect").getBoundingClientRect().y);
    const seen = new Set();
    for (let step = 0; step < 5; step += 1) {
      const before = await page.evaluate(() => Number(document.activeElement.querySelector("rect").getAttribute("y")));
      await page.keyboard.press("ArrowDown");
      const after = await page.evaluate(() => Number(document.activeElement.querySelector("rect").getAttribute("y")));
      assert.ok(after > before, `${before} to ${after}`);
      seen.add(await at());
    }
    const group = await page.evaluate(() => document.activeElement.dataset.group);
    await page.keyboard.press("Enter");
    assert.equal(await page.locator(".details h4").first().innerText(), `Kernel ${group}`);
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press(" ");
    assert.match(await page.locator(".details h4").first().innerText(), /^Kernel \d+$/);
    // Each report of a page has one box that the tab key reaches.
    assert.equal(await page.locator(".box[tabindex='0']").count(), await page.locator(".report").count());
  }));
