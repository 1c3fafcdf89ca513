// The browser and the pages under test. `scripts/page.sh` sets where both are.
import { chromium } from "playwright-core";
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after } from "node:test";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const FOLDER = resolve(process.env.OPFUSE_PAGES ?? "pages");
const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-color-profile=srgb",
  "--font-render-hinting=none",
];

/** One browser for all tests of a file, with a new and empty profile. */
let browser = null;
after(async () => (await browser)?.close());

/** The pages of `examples/pages.rs`, and that of the tour. */
export const PAGES = ["explain", "large", "segments", "eager", "profile", "profile_fixed", "passes", "tour"];

export const url = (name) => {
  const path = join(FOLDER, `${name}.html`);
  assert.ok(existsSync(path), `${path} is not there; scripts/page.sh makes it`);
  return pathToFileURL(path).href;
};

/**
 * Opens a page, and gives it to `look`. What the page printed, and what it asked the network for, are errors
 * afterwards.
 */
export async function open(name, look, options = {}) {
  browser ??= chromium.launch({
    executablePath: process.env.OPFUSE_CHROMIUM ?? "/usr/bin/chromium",
    args: FLAGS,
    headless: true,
  });
  const context = await (await browser).newContext({
    viewport: { width: 1280, height: 900 },
    colorScheme: "light",
    reducedMotion: "reduce",
    ...options,
  });
  try {
    const page = await context.newPage();
    const [wrong, own] = [[], url(name)];
    page.on("console", (message) => wrong.push(`console: ${message.text()}`));
    page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
    page.on("request", (request) => {
      if (request.url() !== own) wrong.push(`request: ${request.url()}`);
    });
    await page.goto(own);
    await look(page);
    assert.deepEqual(wrong, [], `${name} printed or loaded something`);
  } finally {
    await context.close();
  }
}
