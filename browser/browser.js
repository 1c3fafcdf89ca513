// The browser and the pages under test. `scripts/page.sh` sets where both are.
import { chromium } from "playwright-core";
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const FOLDER = resolve(process.env.OPFUSE_PAGES ?? "pages");
const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-color-profile=srgb",
];

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
  const folder = await mkdtemp(join(tmpdir(), "opfuse-pages-"));
  const context = await chromium.launchPersistentContext(folder, {
    executablePath: process.env.OPFUSE_CHROMIUM ?? "/usr/bin/chromium",
    args: FLAGS,
    headless: true,
    viewport: { width: 1280, height: 900 },
    colorScheme: "light",
    reducedMotion: "reduce",
    ...options,
  });
  try {
    const page = context.pages()[0] ?? await context.newPage();
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
    await rm(folder, { recursive: true, force: true });
  }
}
