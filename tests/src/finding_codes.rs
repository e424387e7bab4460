//! Compares the table of findings with the tests: a test names each code. The author of the test takes care that it raises the
//! finding, and does not only pass it on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use contract::codes::CODES;

use crate::places::workspace;

/// Files of these crates that hold nothing but tests, by the ends of their paths.
const TESTS: [&str; 4] = ["_tests.rs", "/tests.rs", ".snap", "/cuts.rs"];

/// The tests of a source file: all of it, or its module of tests.
fn tests_of(path: &str, text: &str) -> String {
    if path.contains("/tests/") || TESTS.iter().any(|end| path.ends_with(end)) {
        return text.to_owned();
    }
    let modules = text.split("#[cfg(test)]\n").skip(1);
    modules.filter(|rest| rest.lines().next().is_some_and(|line| line.ends_with('{'))).collect()
}

fn gather(directory: &Path, root: &Path, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).expect("a directory of sources") {
        let path = entry.expect("a directory of sources").path();
        if path.is_dir() {
            gather(&path, root, found);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "snap") {
            let text = fs::read_to_string(&path).expect("a source file");
            let name = format!("/{}", path.strip_prefix(root).expect("a path below the root").display());
            found.insert(name.clone(), tests_of(&name, &text));
        }
    }
}

/// The text of all tests.
fn all_tests() -> String {
    let (root, mut found) = (workspace(), BTreeMap::new());
    for part in ["agent", "contract", "fleet", "kaas", "kaas-dev", "lab"] {
        gather(&root.join(part).join("src"), &root, &mut found);
    }
    for part in ["agent/tests", "kaas/tests", "tests/tests"] {
        gather(&root.join(part), &root, &mut found);
    }
    found.into_values().collect()
}

/// Whether a text names a code, and not only one that begins or ends like it.
fn names(text: &str, code: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '-');
    text.match_indices(code)
        .any(|(at, _)| !part(text[..at].chars().next_back()) && !part(text[at + code.len()..].chars().next()))
}

#[test]
fn a_test_names_each_code_of_findings() {
    let tests = all_tests();
    let unnamed: Vec<&str> = CODES.iter().map(|code| code.code).filter(|code| !names(&tests, code)).collect();
    assert!(unnamed.is_empty(), "no test names these codes: {}", unnamed.join(", "));
}

#[test]
fn only_tests_count_and_only_whole_codes() {
    let file =
        "fn raise() { \"disk.failed\" }\n#[cfg(test)]\nuse x::Y;\n#[cfg(test)]\nmod tests {\n    \"disk.full\"\n}\n";
    let tests = tests_of("/agent/src/disk.rs", file);
    assert!(names(&tests, "disk.full") && !names(&tests, "disk.failed"), "{tests}");
    assert!(names(&tests_of("/agent/src/disk_tests.rs", file), "disk.failed"));
    for other in ["disk.fulling", "disk.full-stop", "my-disk.full"] {
        assert!(!names(other, "disk.full"), "{other}");
    }
    assert!(names("error disk.full: ", "disk.full"));
}
