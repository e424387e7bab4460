//! The set-up step on bare machines of both Debian releases.

use scenarios::bare::{BareMachine, LENT_RUST, USER};

/// Programs that the builder, the lab and the tests call on the host. A compilation tests `cc` and the headers of the C library.
const PROGRAMS: &str =
    "mmdebstrap bwrap systemd-nspawn ip bridge nft ethtool ssh ssh-keygen openssl modprobe losetup mount git
    sfdisk partx resizepart blkid nsenter unshare setpriv mkfs.ext4 e2fsck resize2fs mkswap apt-get dpkg-deb perl awk go";
const COMPILES: &str = "printf '#include <stdio.h>\nint main(void) { return 0; }\n' | cc -x c -o /dev/null -";
/// A package of a user's, whose test Cargo compiles as the user and runs as root.
const TEST: &str = r#"set -e
mkdir -p ~/try/src && cd ~/try
printf '[package]\nname = "try"\nedition = "2024"\n' >Cargo.toml
cat >src/lib.rs <<'END'
#[test]
fn runs_as_root_with_the_callers_environment() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    assert!(status.contains("Uid:\t0\t0\t0\t0"), "{status}");
    for (name, value) in [
        ("KAAS_TRIED", "a b"),
        ("https_proxy", "http://user:word@127.0.0.1:9"),
        ("HOME", "/home/builder"),
        ("CARGO_HOME", "/home/builder/.cargo"),
        ("GOPROXY", "http://127.0.0.1:9"),
    ] {
        assert_eq!(std::env::var(name).as_deref(), Ok(value), "{name}");
    }
    let path = std::env::var("PATH").unwrap();
    assert!(path.starts_with("/opt/rust/bin:") && path.ends_with(":/sbin"), "{path}");
}
END
export KAAS_TRIED='a b' https_proxy=http://user:word@127.0.0.1:9 CARGO_HOME=$HOME/.cargo GOPROXY=http://127.0.0.1:9
CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$HOME/kaas/.ci/as-root" cargo test --quiet --offline --lib
"#;

fn bare(suite: &str) -> BareMachine {
    let bare = BareMachine::new(suite).unwrap_or_else(|error| panic!("{error:#}"));
    bare.copy_in_project().unwrap_or_else(|error| panic!("{error:#}"));
    bare
}

fn run(bare: &BareMachine, user: &str, script: &str) -> scenarios::bare::ScriptOutput {
    bare.run(user, script).unwrap_or_else(|error| panic!("{error:#}"))
}

/// Runs the set-up step, which is to fail with one line that has `words` after the lines that begin as `before` says.
fn stops(bare: &BareMachine, user: &str, script: &str, before: &[&str], words: &str) {
    let said = run(bare, user, script);
    assert!(!said.succeeded, "{said:?}");
    let lines: Vec<_> = said.text.lines().filter(|line| !line.starts_with("make: ")).collect();
    assert_eq!(lines.len(), before.len() + 1, "{said:?}");
    for (line, start) in lines.iter().zip(before) {
        assert!(line.starts_with(start), "{line} does not begin with {start}");
    }
    let last = lines[before.len()];
    assert!(last.starts_with("setup: ") && last.contains(words), "{last} does not say {words}");
}

fn is_silent(bare: &BareMachine, user: &str, script: &str) {
    let said = run(bare, user, script);
    assert!(said.succeeded && said.text.is_empty(), "{said:?}");
}

fn has_programs(bare: &BareMachine) {
    let look =
        format!("for program in {PROGRAMS}; do command -v $program >/dev/null || echo $program; done\n{COMPILES}");
    is_silent(bare, "root", &look.replace("\n    ", " "));
}

/// Installs all but Rust. Rust is installed if apt has a package `rustup` and its server can be reached. Otherwise one line names
/// it.
fn installs(bare: &BareMachine, user: &str, suite: &str) {
    let said = run(bare, user, "make setup");
    let installing = said.lines("setup: installing ");
    assert!(
        installing.first().is_some_and(|line| line.contains("mmdebstrap") && line.contains("golang-go")),
        "{said:?}"
    );
    let others: Vec<_> = said.text.lines().filter(|line| !line.starts_with("setup: ")).collect();
    let rust = said.text.lines().filter(|line| line.contains(" Rust ")).collect::<Vec<_>>();
    match (suite, said.succeeded) {
        ("bookworm", false) => {
            assert_eq!(rust.len(), 1, "{said:?}");
            assert!(rust[0].contains("is needed, and apt has no package rustup here"), "{said:?}");
        }
        (_, true) => {
            assert_eq!((rust.len(), others.len()), (1, 0), "{said:?}");
            is_silent(bare, user, "make setup");
            is_silent(bare, user, "cargo clippy --version >/dev/null; cargo fmt --version >/dev/null");
        }
        (_, false) => {
            assert!(rust.last().is_some_and(|line| line.contains("rustup could not install Rust")), "{said:?}")
        }
    }
    has_programs(bare);
}

fn is_set_up_by_root(suite: &str) {
    let mut bare = bare(suite);
    installs(&bare, "root", suite);
    // A distribution's Rust that is too old, and one that will do.
    let with = |version: &str| {
        format!(
            "mkdir -p /tmp/old; printf '#!/bin/sh\necho cargo {version}\n' >/tmp/old/cargo; chmod +x /tmp/old/cargo
                 rm -f /usr/bin/rustup; PATH=/tmp/old:$PATH make setup"
        )
    };
    stops(&bare, "root", &with("1.85.0"), &[], "or newer is needed, and /tmp/old/cargo is 1.85.0");
    let newer = run(&bare, "root", &with("99.0.0"));
    assert!(newer.succeeded && newer.text.starts_with("setup: building with Rust 99.0.0"), "{newer:?}");
    bare.lend_rust().unwrap();
    is_silent(&bare, "root", &format!("PATH={LENT_RUST}/bin:$PATH make setup"));
}

fn is_set_up_with_sudo(suite: &str) {
    let mut bare = bare(suite);
    stops(&bare, USER, "make setup", &[], "run make as root, or have root install sudo");
    let sudo = run(&bare, "root", "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq sudo");
    assert!(sudo.succeeded, "{sudo:?}");
    // Debian's own /etc/sudoers stays as it is, secure_path included.
    let may = |tags: &str| bare.write("etc/sudoers.d/try", &format!("{USER} ALL=(ALL:ALL) {tags} ALL\n")).unwrap();
    may("NOPASSWD: NOSETENV:");
    let refused = run(&bare, USER, "make setup");
    assert!(!refused.succeeded && refused.lines("setup: ").len() == 1, "{refused:?}");
    assert!(refused.text.contains("in sudoers: ALL, or SETENV"), "{refused:?}");
    may("NOPASSWD:");
    installs(&bare, USER, suite);

    bare.lend_rust().unwrap();
    is_silent(&bare, USER, &format!("export PATH={LENT_RUST}/bin:$PATH; make setup root"));
    let tried = run(&bare, USER, &format!("export PATH={LENT_RUST}/bin:$PATH\n{TEST}"));
    assert!(tried.succeeded && tried.text.contains("1 passed"), "{tried:?}");
    // Files of root would stop the user's next build.
    is_silent(&bare, "root", &format!("find /home/{USER} ! -user {USER}"));
}

pub mod long {
    use super::*;

    pub fn a_bare_bookworm_is_set_up_by_root() {
        is_set_up_by_root("bookworm");
    }

    pub fn a_bare_trixie_is_set_up_by_root() {
        is_set_up_by_root("trixie");
    }

    pub fn user_with_sudo_sets_a_bare_bookworm_up() {
        is_set_up_with_sudo("bookworm");
    }

    pub fn user_with_sudo_sets_a_bare_trixie_up() {
        is_set_up_with_sudo("trixie");
    }
}
