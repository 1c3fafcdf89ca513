#!/usr/bin/env bash
# Builds a program that runs a `.pt2` file, in several ways, and prints how many bytes each is without symbols. After
# them stand times of a call of two small models with one thread.
#
#   scripts/size.sh                          the ways of docs/size.md: twenty minutes on two cores
#   scripts/size.sh small/none               a profile and features of opfuse: `default`, `none`, or names with commas
#   scripts/size.sh --parts small/none       also where the bytes are
#
# Needs nm, readelf and strip of binutils, and python3 for --parts. docs/size.md says what the profiles are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

parts=0
if [ "${1:-}" = --parts ]; then
    parts=1
    shift
fi
ways=("$@")
if [ ${#ways[@]} -eq 0 ]; then
    ways=(release/default release/none small/default small/none smallest/default smallest/none)
fi
target=${CARGO_TARGET_DIR:-$PWD/target}
crate=$target/size
mkdir -p "$crate/src"
cp Cargo.lock "$crate"
cat >"$crate/Cargo.toml" <<END
[package]
name = "size"
version = "0.1.0"
edition = "2024"

[workspace]

[features]
default = ["opfuse/default"]
cranelift = ["opfuse/cranelift"]
cuda = ["opfuse/cuda"]
linalg = ["opfuse/linalg"]
fourier = ["opfuse/fourier"]

[dependencies]
opfuse = { path = "$PWD", default-features = false }

[profile.small]
inherits = "release"
lto = "fat"
codegen-units = 1
panic = "abort"

[profile.small.package.cranelift-codegen]
opt-level = "s"

[profile.small.package.regalloc2]
opt-level = "s"

[profile.smallest]
inherits = "small"
opt-level = "s"
END
cat >"$crate/src/main.rs" <<'END'
//! Runs the program of a `.pt2` file on recorded arrays, and prints the median time of a call.

use opfuse::autograd::no_grad;
use opfuse::exported::Program;
use opfuse::{Result, Tensor};
use std::time::{Duration, Instant};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let program = Program::load(arguments.next().unwrap_or_default())?;
    let arrays = opfuse::load(arguments.next().unwrap_or_default())?;
    let inputs: Vec<Tensor> = (0..).map_while(|at| arrays.get(&format!("0.in.{at}")).cloned()).collect();
    let _unrecorded = no_grad();
    for _ in 0..20 {
        program.call(&inputs)?;
    }
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < Duration::from_millis(500) {
        let before = Instant::now();
        program.call(&inputs)?;
        times.push(before.elapsed());
    }
    times.sort();
    println!("{:.1} us", times[times.len() / 2].as_secs_f64() * 1e6);
    Ok(())
}
END

# Incremental code is cut into more pieces and is larger.
export CARGO_INCREMENTAL=0
# Flags for a target leave build scripts alone, which need to unwind.
host=$(rustc -vV | sed -n 's/^host: //p')
for way in "${ways[@]}"; do
    profile=${way%%/*}
    features=${way#*/}
    case $features in
        default) flags=() ;;
        none) flags=(--no-default-features) ;;
        *) flags=(--no-default-features --features "$features") ;;
    esac
    rustflags=
    if [ "$profile" = smallest ]; then
        rustflags='-C force-unwind-tables=no -C link-arg=-Wl,-z,pack-relative-relocs'
    fi
    RUSTFLAGS=$rustflags CARGO_TARGET_DIR=$target cargo build --quiet --manifest-path "$crate/Cargo.toml" \
        --target "$host" --profile "$profile" "${flags[@]}"
    program=$target/$host/$profile/size
    strip -o "$crate/stripped" "$program"
    printf '%-24s %5.1f MB' "$way" "$(awk "BEGIN { print $(stat -c %s "$crate/stripped") / 1e6 }")"
    for model in bert resnet; do
        printf ', %s %s' "$model" "$(OPFUSE_NUM_THREADS=1 "$program" tests/formats/exported/$model.{pt2,npz})"
    done
    printf '\n'
    if [ "$parts" = 1 ]; then
        python3 scripts/symbol_sizes.py "$program"
    fi
done
