#!/usr/bin/env bash
# Tests the pages of reports, profiles, passes and the tour in a headless Chromium: scripts/page.sh.
# UPDATE_EXPECT=1 accepts the screenshots. OPFUSE_PAGES names a folder with pages instead of those of this checkout,
# and OPFUSE_CHROMIUM a browser. Two packages are installed from a package index: playwright-core and axe.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

skip() {
    printf 'skipped: %s, so the pages were not tested in a browser\n' "$1"
    exit 0
}

command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1 || skip 'node or npm is not there'
node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 20 ? 1 : 0)' || skip 'node is older than version 20'
if [ -z "${OPFUSE_CHROMIUM:-}" ]; then
    for name in chromium chromium-browser google-chrome; do
        if OPFUSE_CHROMIUM=$(command -v "$name"); then break; fi
    done
fi
[ -x "${OPFUSE_CHROMIUM:-}" ] || skip 'Chromium is not there'
(cd browser && npm ci --no-audit --no-fund) || skip 'the packages could not be installed; the reason stands above'

if [ -z "${OPFUSE_PAGES:-}" ]; then
    OPFUSE_PAGES=$(mktemp -d)
    trap 'rm -r "$OPFUSE_PAGES"' EXIT
    # One tier and one thread, so that the pages are the same on every machine.
    OPFUSE_TIER=vm OPFUSE_NUM_THREADS=1 cargo run --release --example pages "$OPFUSE_PAGES"
    cp docs/tour.html "$OPFUSE_PAGES"
fi
export OPFUSE_PAGES OPFUSE_CHROMIUM
cd browser
node --test --test-concurrency=1
