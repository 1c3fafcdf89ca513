// Screenshots against the checked-in pictures of `pictures`. `UPDATE_EXPECT=1` accepts what is seen.
//
// Fonts differ between machines, so all letters are those of a monospaced font of 12 px, which are 7.2 px wide in the
// usual ones. A picture is cut into cells, and the mean colours of cells are compared: a letter may look different, a
// box may not be elsewhere. What is not seen: other glyphs, and lines that move by less than a cell.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { test } from "node:test";
import { open } from "./browser.js";

/** The side of a cell in pixels, the difference of a colour that counts, and the share of cells that may differ. */
const [CELL, MOST, SHARE] = [10, 32, 0.02];
const LETTERS = "body, body * { font: 12px/16px monospace !important; text-rendering: geometricPrecision; }";

const top = () => undefined;
const at = (heading) => (page) =>
  page.getByRole("heading", { name: heading }).first().evaluate((one) => one.scrollIntoView({ block: "start" }));
const chosen = async (page) => {
  await page.locator(".box[data-group]").nth(9).click();
  await at("Graph")(page);
};

const PICTURES = [
  ["explain_light", "explain", "light", top],
  ["explain_chosen", "explain", "dark", chosen],
  ["explain_times", "explain", "light", at("Timeline")],
  ["explain_plans", "explain", "dark", at("Op by op")],
  ["profile_light", "profile_fixed", "light", top],
  ["profile_dark", "profile_fixed", "dark", at("Roofline")],
  ["passes_light", "passes", "light", top],
  ["tour_light", "tour", "light", top],
  ["tour_dark", "tour", "dark", at("6. The kernel")],
];

for (const [name, of, scheme, show] of PICTURES) {
  test(`${name} looks as before`, () =>
    open(of, async (page) => {
      await page.addStyleTag({ content: LETTERS });
      await show(page);
      // The pointer lights what is under it. Names of spans follow the new letters with the next frame.
      await page.mouse.move(0, 0);
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
      const seen = await page.screenshot({ animations: "disabled" });
      const path = new URL(`pictures/${name}.png`, import.meta.url);
      if (process.env.UPDATE_EXPECT === "1") return writeFile(path, seen);
      assert.ok(existsSync(path), `there is no ${path.pathname}; UPDATE_EXPECT=1 makes it`);
      const expected = await readFile(path);
      const share = await differing(page, expected, seen);
      if (share > SHARE) await writeFile(new URL(`pictures/${name}.seen.png`, import.meta.url), seen);
      assert.ok(share <= SHARE, `${(100 * share).toFixed(1)} % of the cells differ; see ${name}.seen.png`);
    }, { colorScheme: scheme, viewport: { width: 1024, height: 720 } }));
}

test("a moved box is a difference, and another letter is none", () =>
  open("eager", async (page) => {
    const draw = async (script) => {
      await page.evaluate((markup) => { document.body.innerHTML = markup; }, script);
      await page.addStyleTag({ content: LETTERS });
      return page.screenshot();
    };
    const box = (left) => `<div style="margin-left:${left}px;width:400px;height:300px;background:#27c"></div>`;
    const base = await draw(`${box(0)}<p>letters</p>`);
    assert.equal(await differing(page, base, await draw(`${box(0)}<p>letters</p>`)), 0);
    assert.ok(await differing(page, base, await draw(`${box(0)}<p>lettres</p>`)) <= SHARE);
    assert.ok(await differing(page, base, await draw(`${box(60)}<p>letters</p>`)) > SHARE);
    assert.ok(await differing(page, base, await draw(`${box(0).replace("#27c", "#2a5")}<p>letters</p>`)) > SHARE);
  }));

/** The share of cells whose mean colours differ. The browser decodes the pictures. */
async function differing(page, expected, seen) {
  const sources = [expected, seen].map((bytes) => bytes.toString("base64"));
  return page.evaluate(async ([sources, cell, most]) => {
    const decode = async (base64) => {
      const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
      const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
      const [columns, rows] = [Math.floor(bitmap.width / cell), Math.floor(bitmap.height / cell)];
      const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
      context.drawImage(bitmap, 0, 0);
      const { data } = context.getImageData(0, 0, bitmap.width, bitmap.height);
      const cells = new Float64Array(columns * rows * 3);
      for (let y = 0; y < rows * cell; y += 1) {
        for (let x = 0; x < columns * cell; x += 1) {
          const [from, to] = [4 * (y * bitmap.width + x), 3 * (Math.floor(y / cell) * columns + Math.floor(x / cell))];
          for (let channel = 0; channel < 3; channel += 1) cells[to + channel] += data[from + channel] / cell ** 2;
        }
      }
      return { size: `${columns} ${rows}`, cells };
    };
    const [one, other] = await Promise.all(sources.map(decode));
    if (one.size !== other.size) return 1;
    let n = 0;
    for (let at = 0; at < one.cells.length; at += 3) {
      const distance = [0, 1, 2].map((channel) => Math.abs(one.cells[at + channel] - other.cells[at + channel]));
      n += Math.max(...distance) > most ? 1 : 0;
    }
    return n / (one.cells.length / 3);
  }, [sources, CELL, MOST]);
}
