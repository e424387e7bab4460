//! Examples of what the check refuses, and of what it allows.

use super::*;

/// The refused words in a doc comment.
fn found(comment: &str) -> Vec<String> {
    hits("src/a.rs", &format!("/// {comment}\n")).into_iter().map(|(_, found)| found).collect()
}

/// The lines and refused words of a file.
fn hits(path: &str, text: &str) -> Vec<(usize, String)> {
    let parts = parts(path, text, &Rules::new());
    parts.into_iter().flat_map(|part| part.hits).map(|hit| (hit.line, hit.found)).collect()
}

#[test]
fn refused_words_are_found() {
    for (sentence, expected) in [
        ("Nobody reads it.", "`Nobody`"),
        ("It waits for somebody's answer.", "`somebody's`"),
        ("The door is open to whoever asks.", "`whoever`"),
        ("The VM is made anew.", "`anew`"),
        ("A file beside the journal.", "`beside`"),
        ("The node is told the address.", "`is told`"),
        ("A worker that was not told the secret.", "`was not told`"),
        ("A kubeconfig is to be had.", "`be had`"),
        ("The command goes by the journal.", "`goes by`"),
        ("The name stands in the form.", "`stands`"),
        ("A VM that is there already.", "`is there`"),
        ("The disk is not there.", "`is not there`"),
        ("The disk is no longer there.", "`is no longer there`"),
        ("Of these there are none.", "`are none`"),
        ("It may have ended by now.", "`by now`"),
        ("The node has no address any more.", "`any more`"),
        ("It runs in a process of its own.", "`of its own`"),
        ("Waits until a person has seen it.", "`a person`"),
        ("The next boot mends that.", "`mends`"),
        ("The node is ill.", "`ill`"),
        ("Waits until all is well again.", "`is well`"),
        ("Etcd says that it is well.", "`is well`"),
        ("Each control node has it.", "`control node`"),
        ("The control node's address.", "`control node's`"),
        ("The cluster's authority has signed it.", "`authority`"),
        ("A token that is good for a day.", "`good for`"),
        ("It runs the next minor.", "`minor`"),
        ("Both minors are in the image.", "`minors`"),
        ("He has ten minutes.", "`He`"),
        ("What the node has said.", "`What`"),
        ("It is read. Who asks again gets the same.", "`Who`"),
        ("Nor does it wait.", "`Nor`"),
        ("So is the other one.", "`So is`"),
        ("The way back needs it too.", "`way back`"),
        ("Which nodes control nodes have let in.", "`let in`"),
    ] {
        assert!(found(sentence).contains(&expected.to_owned()), "{sentence}: {:?}", found(sentence));
    }
}

#[test]
fn plain_sentences_are_allowed() {
    for sentence in [
        "No node reads it.",
        "Besides the journal it reads the lock.",
        "`nobody` is a user, \"nobody\" is quoted, and 'nobody' is a word.",
        "See [the page](https://example.com/nobody) and https://example.com/somebody.",
        "The node has told the controller its address.",
        "Pods that are stopped go by themselves.",
        "`N` stands for a number.",
        "Is there a VM of this name?",
        "Is the VM still there?",
        "If there is a disk, it is read.",
        "The plan has any more steps than the journal.",
        "It allows any more nodes.",
        "The node's own disk.",
        "The operator decides.",
        "A recommended value, amended later.",
        "The illegal value is refused.",
        "A well-known port that is well below 1024.",
        "The image is as well checked as the disk.",
        "The certificate authority has signed it.",
        "A minor version and a minor change.",
        "The rest stays as it is, and rests on the plan.",
        "Whose VM it is.",
        "What is a lease?",
        "The node knows who asks, and what it has.",
        "Whatever the cause, it waits.",
        "So the node waits.",
        "They add a node, e.g. What the form names.",
        "It turns the page and lets the node start in the lab.",
        "An upgrade takes the disk back-up first.",
    ] {
        assert_eq!(found(sentence), Vec::<String>::new(), "{sentence}");
    }
}

#[test]
fn long_sentences_are_found_in_pages() {
    let long = format!("A {}end.", "very ".repeat(24));
    assert_eq!(found(&long), ["a sentence of 26 words"]);
    assert_eq!(found(&format!("{} It ends.", &long[7..])), Vec::<String>::new());
    assert_eq!(hits("docs/a.md", &format!("# {long}\n\n- {long}\n\n    {long}\n")).len(), 1);
    assert_eq!(hits("src/a.rs", &format!("// {long}\n/// {long}\nfn a() {{}}\n")).len(), 1);
}

#[test]
fn names_of_tests_are_found() {
    let test = "    #[tokio::test(start_paused = true)]\n    // Why.\n    async fn a_b_c_d_e_f_g_h_nobody() {}\n";
    assert_eq!(hits("src/a.rs", test), [(3, "`nobody`".to_owned()), (3, "a name of 9 words".to_owned())]);
    let scenario = "pub mod long {\n    pub fn a_b_c_d_e_f_g_h_i(scenario: &Scenario) {}\n}\n";
    assert_eq!(hits("tests/tests/lab/a.rs", scenario).len(), 1);
    assert_eq!(hits("src/a.rs", scenario).len(), 0);
}

#[test]
fn each_kind_of_file_is_read() {
    for (path, text, lines) in [
        ("src/a.rs", "/// Nobody\n/// comes. Nobody waits.\nlet a = 1; // Nobody.\n", &[1, 2, 3][..]),
        ("src/a.rs", "fn a() {\n    bail!(\"the {nobody} waits \\\n        for nobody\\nand nobody\");\n}\n", &[3, 3]),
        ("src/a.rs", "let a = ['\"', '\\''];\nlet b = r#\"a \"nobody // x\" b\"#; // Nobody.\n", &[2]),
        ("src/a.rs", "let a: &'static str = \"for nobody\";\n", &[1]),
        ("src/a.rs", "let a = \"nobody\";\nlet b = \"\n# nobody\n\";\n", &[]),
        ("src/a.rs", "#[cfg(test)]\nmod tests {\n    // Nobody.\n    let a = \"for nobody\";\n}\n", &[3]),
        ("tests/src/a.rs", "let a = \"for nobody\"; // Nobody.\n", &[1]),
        ("src/a.rs", "/// ```\n/// nobody\n/// ```\n/// Nobody.\n", &[4]),
        ("a.go", "// Nobody.\nvar a = `// nobody` // Nobody.\n", &[1, 2]),
        ("docs/a.md", "Nobody\nor `nobody\nat all` nobody.\n\n```\nnobody\n```\n\n    nobody\n", &[1, 3]),
        ("docs/a.md", "| What | Nobody |\n|---|---|\n| What `a|b` | x |\n", &[1, 3]),
        ("docs/a.md", "<!-- a:begin -->\nNobody.\n<!-- a:end -->\nNobody.\n", &[4]),
        ("docs/a.md", "## What is read\n\nWhat is read.\n", &[3]),
        ("Makefile", "a: b ## Build for nobody\n# Nobody.\n", &[1, 2]),
        (".ci/run", "#!/bin/sh\n# Nobody.\necho nobody\n", &[2]),
        ("a.toml", "# Nobody.\ndescription = \"for nobody\" # Nobody.\n", &[1, 2, 2]),
        ("systemd/system/a.service", "[Unit]\nDescription=For nobody\n# Nobody.\n", &[2, 3]),
        ("a.snap", "nobody\n", &[]),
    ] {
        let found: Vec<usize> = hits(path, text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(found, lines, "{path}: {text}");
    }
}

fn all(files: &[(&str, &str)]) -> Vec<Part> {
    files.iter().flat_map(|(path, text)| parts(path, text, &Rules::new())).collect()
}

/// The failure of the check for files and a lock. Empty if it passes.
fn judged(files: &[(&str, &str)], lock: &str) -> String {
    let (parts, locked) = (all(files), locked(lock));
    new_hits(&parts, &locked) + &stale(&parts, &locked)
}

#[test]
fn known_prose_is_allowed_under_any_path() {
    let lock = renewed(&all(&[("src/a.rs", "/// Nobody.\nfn a() {}\n\n/// All.\n")]), None).unwrap();
    assert_eq!(lock.lines().count(), 1);
    assert!(lock.starts_with("1 ") && lock.ends_with(" src/a.rs\n"), "{lock}");
    // Moved, its code changed, its comments wrapped and in another order.
    let moved = ("b/src/b.rs", "/// All.\nfn b() {}\n\n///\n/// Nobody.\n");
    assert_eq!(judged(&[moved], &lock), "");
    let renewed = renewed(&all(&[moved]), Some(&lock)).unwrap();
    assert_eq!(renewed, lock.replace("src/a.rs", "b/src/b.rs"));
}

#[test]
fn changed_prose_with_hits_is_refused() {
    let lock = renewed(&all(&[("src/a.rs", "/// Nobody. Nobody.\n")]), None).unwrap();
    let changed = [("src/a.rs", "/// Nobody.\n")];
    let refused = judged(&changed, &lock);
    assert!(refused.contains("src/a.rs:1: `Nobody`, write a subject"), "{refused}");
    assert!(renewed(&all(&changed), Some(&lock)).is_err());
    let new = [("src/a.rs", "/// Nobody. Nobody.\n"), ("src/b.rs", "/// Anew.\n")];
    assert!(judged(&new, &lock).contains("src/b.rs:1: `Anew`"));
    assert!(renewed(&all(&new), Some(&lock)).unwrap_err().contains("src/b.rs"));
}

#[test]
fn clean_prose_makes_its_line_stale() {
    let lock = renewed(&all(&[("src/a.rs", "/// Nobody.\n")]), None).unwrap();
    let clean = [("src/a.rs", "/// No node.\n")];
    let refused = judged(&clean, &lock);
    assert!(refused.contains("Run `make words`") && refused.contains(&lock), "{refused}");
    assert_eq!(renewed(&all(&clean), Some(&lock)).unwrap(), "");
    assert_eq!(judged(&clean, ""), "");
}

#[test]
fn paragraphs_of_a_page_count_alone() {
    let before = "# Changelog\n\n- Nobody\n  waits.\n- It waits.\n";
    let lock = renewed(&all(&[("CHANGELOG.md", before)]), None).unwrap();
    assert_eq!(lock.lines().count(), 1);
    assert_eq!(judged(&[("CHANGELOG.md", &before.replace("- It", "- A new entry.\n- It"))], &lock), "");
    assert!(judged(&[("CHANGELOG.md", &before.replace("- It", "- Anew.\n- It"))], &lock).contains(":5: `Anew`"));
}

#[test]
fn many_hits_are_cut() {
    let text = "Nobody. ".repeat(50);
    let refused = judged(&[("docs/a.md", &text)], "");
    assert!(refused.contains("docs/a.md: 50 refused patterns\nThe first 40:\n"), "{refused}");
    assert_eq!(refused.lines().count(), 43);
}

#[test]
#[should_panic(expected = "tests/words.lock:2: no line `COUNT HASH PATH`: <<<<<<< ours")]
fn a_conflict_in_the_lock_is_named() {
    locked("1 0123456789abcdef a.rs\n<<<<<<< ours\n");
}
