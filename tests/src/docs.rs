//! Checks the documentation. Each link leads to an existing file and heading. Each command of `kaas` is in the reference.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The Markdown files of the repository's root, and each page in `docs/` and below, by their paths in the repository.
fn pages() -> BTreeMap<String, String> {
    let mut names = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned).to_vec();
    gather_pages("docs", &mut names);
    names.into_iter().map(|name| (name.clone(), fs::read_to_string(repository().join(name)).unwrap())).collect()
}

fn gather_pages(directory: &str, names: &mut Vec<String>) {
    for entry in fs::read_dir(repository().join(directory)).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{directory}/{}", entry.file_name().into_string().unwrap());
        if entry.path().is_dir() {
            gather_pages(&name, names);
        } else if name.ends_with(".md") {
            names.push(name);
        }
    }
}

/// The text without fenced code and code spans. These have no links and no headings.
fn prose(page: &str) -> String {
    let mut text = String::new();
    let mut fenced = false;
    for line in page.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            text.push_str(line);
            text.push('\n');
        }
    }
    // A code span may continue in the next line, not in the next paragraph.
    text.split("\n\n").flat_map(|paragraph| paragraph.split('`').step_by(2).chain(["\n\n"])).collect()
}

/// The targets of a page's links, as they are written.
fn links(page: &str) -> Vec<String> {
    let prose = prose(page);
    prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
}

/// The anchors that GitHub gives a page's headings, and those of lines `<a id="…"></a>`.
fn anchors(page: &str) -> Vec<String> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in page.lines() {
        fenced ^= line.starts_with("```");
        found.extend(line.strip_prefix("<a id=\"").and_then(|id| Some(id.strip_suffix("\"></a>")?.to_owned())));
        let Some(heading) = line.strip_prefix('#').filter(|_| !fenced) else { continue };
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        found.push(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
    }
    found
}

/// The broken links of a page. `page` returns the text of another page. `exists` reports whether a file or a directory exists.
fn broken(name: &str, text: &str, page: impl Fn(&str) -> Option<String>, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
    let is_broken = |link: &String| {
        if link.contains("://") {
            return false;
        }
        let (path, anchor) = link.split_once('#').map_or((link.as_str(), None), |(path, anchor)| (path, Some(anchor)));
        let target = if path.is_empty() { name.to_owned() } else { join(directory, path) };
        match anchor {
            Some(anchor) => !page(&target).is_some_and(|page| anchors(&page).iter().any(|known| known == anchor)),
            None => !exists(&target),
        }
    };
    links(text).into_iter().filter(is_broken).map(|link| format!("{name}: {link}")).collect()
}

fn join(directory: &str, path: &str) -> String {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// The commands of `program` in the reference, and the beginnings of commands with several words.
fn listed(reference: &str, program: &str) -> BTreeSet<String> {
    let begin = format!("| `{program} ");
    let rows = reference.lines().filter_map(|line| line.strip_prefix(begin.as_str())?.split_once('`'));
    rows.flat_map(|(command, _)| {
        let words: Vec<&str> = command.split(' ').collect();
        (0..=words.len()).map(move |length| format!("{program} {}", words[..length].join(" ")).trim_end().to_owned())
    })
    .collect()
}

/// The commands of `program` in a text, as far as they are plain words. `known` has the commands that continue. With `quoted`,
/// only commands behind a backtick count.
fn named(text: &str, program: &str, known: &BTreeSet<String>, quoted: bool) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let begins = |word: &str| match quoted {
        true => word.ends_with(&format!("`{program}")),
        false => word.trim_start_matches(['`', '(', '*', '"']) == program,
    };
    let starts = (0..words.len()).filter(|&at| begins(words[at]));
    starts
        .map(|start| {
            let mut command = program.to_owned();
            for word in &words[start + 1..] {
                let plain: String = word.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
                let goes_on = known.iter().any(|other| other.starts_with(&format!("{command} ")));
                if plain.is_empty() || !goes_on {
                    break;
                }
                command = format!("{command} {plain}");
                if plain != *word {
                    break;
                }
            }
            command
        })
        .collect()
}

/// The lines of a source that may have a message: no comments and no tests.
fn messages(source: &str) -> String {
    let source = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    source.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect()
}

/// The `known` commands in a source without a backtick before them: the check would not see a wrong one. A command that is printed
/// on a separate line, after two blanks, needs none.
fn unquoted(source: &str, program: &str, known: &BTreeSet<String>) -> Vec<String> {
    let messages = messages(source);
    let starts = messages.match_indices(program).filter(|(at, _)| {
        let before = &messages[..*at];
        let before = before.strip_suffix("sudo ").unwrap_or(before);
        let is_part = before.ends_with(|c: char| c.is_alphanumeric() || "`-/_.".contains(c));
        // Texts of properties have quotation marks instead, because forms show them.
        !is_part && !before.ends_with("\"  ") && !before.ends_with("\\\"")
    });
    let first = |rest: &str| {
        let word: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
        format!("{program} {word}")
    };
    let commands = starts.filter_map(|(at, _)| Some(first(messages[at + program.len()..].strip_prefix(' ')?)));
    commands.filter(|command| command.len() > program.len() + 1 && known.contains(command)).collect()
}

/// The options in a program's sources (clap's attribute `long`).
fn options(sources: &BTreeMap<String, String>, program: &str) -> BTreeSet<String> {
    let of_program = sources.iter().filter(|(path, _)| path.contains(&format!("/{program}/src/")));
    let mut found: BTreeSet<String> = ["help", "version"].map(str::to_owned).into();
    for (_, text) in of_program {
        let attributes = text.split("#[arg(").skip(1).filter_map(|rest| rest.split_once(")]\n"));
        for (attribute, after) in attributes {
            let mut words = attribute.split(',').map(str::trim);
            let Some(long) = words.find(|word| *word == "long" || word.starts_with("long = ")) else { continue };
            let field = after.lines().map(str::trim).find(|line| !line.starts_with(['#', '/'])).unwrap_or_default();
            let field = field
                .trim_start_matches("pub(super) ")
                .trim_start_matches("pub ")
                .split(':')
                .next()
                .unwrap_or_default()
                .replace('_', "-");
            found.insert(long.strip_prefix("long = ").map_or(field, |name| name.trim_matches('"').to_owned()));
        }
    }
    found
}

/// The options of `program` in a text: in each line, up to the end of the command or the beginning of another one.
fn given<'a>(text: &'a str, program: &str) -> Vec<&'a str> {
    let mut all = Vec::new();
    for line in text.lines() {
        for (at, _) in line.match_indices(&format!("{program} ")) {
            if line[..at].ends_with(|c: char| c.is_alphanumeric() || "-/_.".contains(c)) {
                continue;
            }
            let rest = line[at..].split(['`', '#', '|', ';', '>']).next().unwrap_or_default();
            let words = rest.split_whitespace().take_while(|word| *word != "--");
            let options = words.filter_map(|word| word.trim_start_matches('[').strip_prefix("--"));
            all.extend(options.map(|option| {
                let end = option.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(option.len());
                option[..end].trim_end_matches('-')
            }));
        }
    }
    all
}

/// The sources of the programs, by their paths.
fn sources() -> BTreeMap<String, String> {
    fn gather(directory: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                gather(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.insert(path.display().to_string(), fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    for name in ["agent", "contract", "controller", "fleet", "image", "kaas", "kaas-dev", "lab"] {
        gather(&repository().join(name).join("src"), &mut found);
    }
    found
}

#[test]
fn each_command_is_in_the_reference() {
    let (pages, sources) = (pages(), sources());
    for program in ["kaas", "kaas-dev", "kaas-agent"] {
        let known = listed(&pages["docs/reference/commands.md"], program);
        assert!(known.len() > 10, "{program}: {known:?}");
        let texts = pages.iter().map(|page| (page, false)).chain(sources.iter().map(|source| (source, true)));
        for ((name, text), quoted) in texts {
            let named = named(text, program, &known, quoted);
            let unknown: Vec<String> = named.into_iter().filter(|command| !known.contains(command)).collect();
            assert!(unknown.is_empty(), "{name} names unknown commands: {}", unknown.join(", "));
        }
    }
}

#[test]
fn each_command_in_a_message_is_quoted() {
    let (pages, sources) = (pages(), sources());
    for program in ["kaas", "kaas-dev", "kaas-agent"] {
        let known = listed(&pages["docs/reference/commands.md"], program);
        for (name, text) in sources.iter().filter(|(name, _)| !name.ends_with("tests.rs") && !name.contains("/tests/"))
        {
            let bare = unquoted(text, program, &known);
            assert!(bare.is_empty(), "{name} names commands without a backtick: {}", bare.join(", "));
        }
    }
}

#[test]
fn each_option_exists() {
    let (pages, sources) = (pages(), sources());
    for (program, crates, added) in [
        // `--output` has no attribute in `kaas`.
        ("kaas", &["kaas"][..], &["output"][..]),
        ("kaas-dev", &["kaas", "kaas-dev"], &["lab", "output"]),
        ("kaas-agent", &["agent"], &[]),
    ] {
        let known =
            crates.iter().flat_map(|name| options(&sources, name)).chain(added.iter().map(|name| (*name).to_owned()));
        let known: BTreeSet<String> = known.collect();
        assert!(known.len() > 10 && known.contains("output"), "{program}: {known:?}");
        let mut seen = 0;
        for (name, text) in pages.iter().chain(&sources) {
            let given = given(text, program);
            seen += given.len();
            let unknown: Vec<&str> = given.into_iter().filter(|option| !known.contains(*option)).collect();
            assert!(unknown.is_empty(), "{name} gives {program} unknown options: {}", unknown.join(", "));
        }
        assert!(seen > 10, "{program}: {seen}");
    }
}

#[test]
fn bare_commands_and_options_are_found() {
    let known = listed("| `kaas-agent reset` | x |\n", "kaas-agent");
    let source = "// kaas-agent reset\nlet a = \"give kaas-agent reset\";\nlet b = \"`kaas-agent reset`, of kaas-agent\";\n\
                  let c = \"  kaas-agent reset NODE\";\nlet d = \"kaas-agent runs\";\n#[cfg(test)]\nmod x { kaas-agent reset }";
    assert_eq!(unquoted(source, "kaas-agent", &known), ["kaas-agent reset"]);
    let text = "`kaas-agent restore FILE --confirm C [--as=X]` and --more\n    kaas lab exec --name n vm -- kaas-agent status --output json";
    assert_eq!(given(text, "kaas-agent"), ["confirm", "as", "output"]);
    assert_eq!(given(text, "kaas"), ["name"]);
    let sources = [(
        "/x/agent/src/a.rs",
        "#[arg(long = \"as\", value_name = \"C\")]\n    code: X,\n    /// Y\n    #[arg(long)]\n    pub any_way: bool,",
    )];
    let sources = sources.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
    assert_eq!(options(&sources, "agent").into_iter().collect::<Vec<_>>(), ["any-way", "as", "help", "version"]);
}

#[test]
fn commands_are_found_in_code_and_prose() {
    let known = listed("| `kaas backup` | x |\n| `kaas lab up` | x |\n| `kaas-agent reset` | x |\n", "kaas");
    let text = "`kaas lab up` and\n    kaas backup --node 1\n`kaas lab`, (`kaas lab boot`) by `kaas`, kaas x";
    assert_eq!(
        named(text, "kaas", &known, false),
        ["kaas lab up", "kaas backup", "kaas lab", "kaas lab boot", "kaas x"]
    );
    assert_eq!(named(text, "kaas", &known, true), ["kaas lab up", "kaas lab", "kaas lab boot"]);
    assert_eq!(known.len(), 4);
}

/// The VMs that a text creates with govc, each with its options file.
fn made_by_govc(text: &str) -> Vec<(String, String)> {
    let mut made = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |option: &str| {
            let at = words.iter().position(|word| *word == option)?;
            words.get(at + 1).copied()
        };
        let name = match words.as_slice() {
            [program, "import.ova", ..] if program.ends_with("govc") => after("-name"),
            // The last word, behind the library's item.
            [program, "library.deploy", .., name] if program.ends_with("govc") => Some(*name),
            _ => continue,
        };
        let options = after("-options");
        made.push((name.expect(line).to_owned(), options.expect(line).to_owned()));
    }
    made
}

/// Otherwise a copied command would create a second VM with the address of another one.
#[test]
fn each_govc_command_has_its_nodes_options_file() {
    let made: Vec<(String, String)> = pages().values().flat_map(|page| made_by_govc(page)).collect();
    assert!(made.len() > 1, "{made:?}");
    for (name, options) in made {
        assert_eq!(options, format!("{name}.json"));
        let Ok(example) = fs::read_to_string(repository().join("docs/examples").join(&options)) else { continue };
        let example: serde_json::Value = serde_json::from_str(&example).unwrap();
        let told = |key: &str| {
            let form = example["PropertyMapping"].as_array().unwrap();
            let property = form.iter().find(|property| property["Key"] == key).unwrap_or_else(|| panic!("{key}"));
            property["Value"].as_str().unwrap().to_owned()
        };
        assert_eq!(told("node-name"), name);
        let address = told("address");
        let entry = format!("{name}={}", address.split('/').next().unwrap());
        assert!(told("control-nodes").split(',').any(|node| node == entry), "{entry}");
    }
}

#[test]
fn govc_commands_are_found() {
    let text = "    govc import.ova -options a.json -name a x.ova\n    build/govc library.deploy -options b.json /images/x c\n    govc vm.power -on a";
    let made = [("a", "a.json"), ("c", "b.json")].map(|(name, options)| (name.to_owned(), options.to_owned()));
    assert_eq!(made_by_govc(text), made);
}

#[test]
fn each_link_leads_somewhere() {
    let (root, pages) = (repository(), pages());
    let broken: Vec<String> = pages
        .iter()
        .flat_map(|(name, text)| broken(name, text, |page| pages.get(page).cloned(), |path| root.join(path).exists()))
        .collect();
    assert!(broken.is_empty(), "links to nothing:\n{}", broken.join("\n"));
}

/// The links of a page whose text is a command, with their targets: ("upgrade", "upgrade-images.md").
fn command_links(page: &str) -> Vec<(String, String)> {
    let calls = page.split("[`kaas").skip(1).filter_map(|rest| rest.trim_start_matches("-dev").strip_prefix(' '));
    let links = calls.filter_map(|rest| rest.split_once("`](").filter(|(text, _)| !text.contains(['`', '\n'])));
    let first = |command: &str| command.split(' ').find(|word| *word != "control").unwrap_or_default().to_owned();
    links.filter_map(|(command, rest)| Some((first(command), rest.split_once(')')?.0.to_owned()))).collect()
}

/// The pages of commands on control clusters.
const COMMAND_PAGES: [(&str, &str); 2] =
    [("create", "docs/install/deploy.md"), ("upgrade", "docs/operate/upgrade-images.md")];

#[test]
fn links_on_commands_lead_to_their_page() {
    let mut seen = 0;
    for (name, text) in pages() {
        let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
        for (command, link) in command_links(&text) {
            let path = link.split('#').next().unwrap_or_default();
            if let Some((_, page)) = COMMAND_PAGES.iter().find(|(known, _)| *known == command)
                && !path.is_empty()
            {
                seen += 1;
                assert_eq!(join(directory, path), *page, "{name}: {command}");
            }
        }
    }
    assert!(seen > 1, "{seen}");
    let said = "as [`kaas control upgrade`](a.md#b) does";
    assert_eq!(command_links(said), [("upgrade".to_owned(), "a.md#b".to_owned())]);
}

/// Pages for operators do not name parts of the code.
#[test]
fn pages_for_operators_name_no_crate() {
    let is_for_developers = |name: &str| name == "CONTRIBUTING.md" || name.starts_with("docs/internals/");
    for (name, text) in pages().iter().filter(|(name, _)| !is_for_developers(name)) {
        for krate in [
            "agent",
            "contract",
            "controller",
            "document",
            "fleet",
            "image",
            "lab",
            "ova",
            "support-bundle",
            "testbed",
            "tls-pin",
            "vsphere",
        ] {
            assert!(!text.contains(&format!("crate `{krate}`")), "{name} names the crate {krate}");
        }
    }
}

/// The paragraphs of a page with a command of the lab, and without the word "lab" outside of code. The paragraph before a block
/// of code counts with it.
fn unlabelled(page: &str) -> Vec<String> {
    let is_lab =
        |text: &str| text.split(|letter: char| !letter.is_alphanumeric()).any(|word| word.eq_ignore_ascii_case("lab"));
    let is_code = |paragraph: &str| paragraph.starts_with("    ") || paragraph.starts_with("```");
    let mut said = String::new();
    let mut found = Vec::new();
    for paragraph in page.split("\n\n") {
        if is_code(paragraph) {
            said.extend(
                paragraph.lines().filter_map(|line| line.split_once(" # ")).map(|(_, comment)| format!(" {comment}")),
            );
        } else {
            said = prose(paragraph);
        }
        let mut calls = paragraph
            .split("kaas-dev lab ")
            .skip(1)
            .map(|rest| rest.starts_with(|next: char| next.is_ascii_lowercase()));
        if (calls.any(|call| call) || paragraph.contains("--lab ")) && !is_lab(&said) {
            found.push(paragraph.to_owned());
        }
    }
    found
}

/// A page about the lab has this word before its first section, and is not checked further.
#[test]
fn commands_of_the_lab_are_labelled() {
    let pages = pages();
    let of_the_lab = ["docs/internals/lab.md", "docs/internals/lab-tenants.md"];
    for name in of_the_lab {
        let begin = pages[name].split("\n## ").next().unwrap();
        assert!(begin.contains("lab"), "{name} does not say that it is about the lab");
    }
    let is_reference = |name: &str| name.starts_with("docs/reference") || name == "docs/internals/verification.md";
    for (name, text) in pages.iter().filter(|(name, _)| !of_the_lab.contains(&name.as_str()) && !is_reference(name)) {
        let found = unlabelled(text);
        assert!(found.is_empty(), "{name} has commands of the lab that are not labelled:\n{}", found.join("\n\n"));
        // Operators with a vCenter need the same command with a file.
        for block in text.split("\n\n").filter(|block| block.starts_with("    ") && block.contains(" --lab ")) {
            assert!(block.contains(" --file "), "{name} shows it for the lab alone:\n{block}");
        }
    }
    assert_eq!(
        unlabelled("In the lab:\n\n    kaas-dev lab up\n\nGive `kaas-dev lab up`.\n\n    kaas-dev lab up # in the lab"),
        ["Give `kaas-dev lab up`."]
    );
}

/// The printed example has each object that the tutorial's commands name, and the tutorial lists these objects.
#[test]
fn the_tutorial_creates_each_object_it_names() {
    let pages = pages();
    let tutorial = &pages["docs/start/first-tenant.md"];
    let example = fs::read_to_string(repository().join("kaas/src/commands/provider/example.yaml")).unwrap();
    for (option, kind, line) in [
        ("--provider ", "Provider", "\nkind: Provider\nmetadata:\n  name: "),
        ("--worker-class ", "VMClass", "\nkind: VMClass\nmetadata:\n  name: "),
        ("--network ", "network", "\n      - name: "),
    ] {
        let name = tutorial
            .split(option)
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next())
            .unwrap_or_else(|| panic!("{option}"));
        let is_there = example.split(line).skip(1).any(|rest| rest.split([',', '\n']).next() == Some(name));
        assert!(is_there, "the example has no {kind} {name}");
        assert!(
            tutorial.contains(&format!("{kind} `{name}`")),
            "docs/start/first-tenant.md does not name the {kind} `{name}`"
        );
    }
}

/// The fenced blocks of a page in this language, joined by empty lines.
fn blocks(page: &str, language: &str) -> String {
    let begin = format!("```{language}\n");
    let contents = page.split(begin.as_str()).skip(1).filter_map(|rest| rest.split("\n```").next());
    contents.collect::<Vec<_>>().join("\n\n")
}

/// The page about the cluster file has the printed example in parts, each with an explanation.
#[test]
fn cluster_file_page_has_the_whole_example() {
    let example =
        fs::read_to_string(repository().join("kaas/src/commands/control/deployment/examples/vsphere.toml")).unwrap();
    assert_eq!(blocks(&pages()["docs/install/cluster-file.md"], "toml"), example.trim_end());
    assert_eq!(blocks("```toml\na\n```\n\nb\n\n```yaml\nc\n```\n\n```toml\nd\n\ne\n```\n", "toml"), "a\n\nd\n\ne");
}

/// The page about teams shows what `kaas tenant create --example` prints, without the first comment.
#[test]
fn teams_page_has_the_whole_example() {
    let example = fs::read_to_string(repository().join("kaas/src/commands/tenant/example.yaml")).unwrap();
    let (_, object) = example.split_once("\napiVersion: ").unwrap();
    assert_eq!(blocks(&pages()["docs/tenants/teams.md"], "yaml"), format!("apiVersion: {}", object.trim_end()));
}

/// `make ova` builds an OVA of each spec in the Makefile.
#[test]
fn readme_names_each_built_ova() {
    let makefile = fs::read_to_string(repository().join("Makefile")).unwrap();
    let specs: Vec<&str> =
        makefile.lines().filter_map(|line| line.split_once(" := image/specs/")).map(|(_, file)| file).collect();
    assert!(specs.len() > 1, "{specs:?}");
    for file in specs {
        let spec = fs::read_to_string(repository().join("image/specs").join(file)).unwrap();
        let name = spec.split_once("\nname = \"").and_then(|(_, rest)| rest.split('"').next()).unwrap();
        assert!(pages()["README.md"].contains(&format!("build/{name}-<version>.ova")), "{name}");
    }
}

/// The disks of a lab are lost, so no script removes them without a question.
#[test]
fn make_lab_down_leaves_the_confirmation_out() {
    let [makefile, setup] = ["Makefile", ".ci/setup"].map(|file| fs::read_to_string(repository().join(file)).unwrap());
    let recipe = makefile.split_once("\nlab-down:").and_then(|(_, rest)| rest.split("\n\n").next()).unwrap();
    assert!(recipe.contains(" lab down") && !recipe.contains("--confirm"), "{recipe}");
    assert!(setup.contains("make lab-down\\` removes the lab's VMs with their disks and all data"));
}

/// The table of contents.
const CONTENTS: &str = "docs/README.md";

#[test]
fn readme_is_short_and_contents_are_complete() {
    let pages = pages();
    let readme = &pages["README.md"];
    assert!(readme.lines().count() <= 120, "README.md has {} lines: move some of it to docs/", readme.lines().count());
    let paths = |page: &str, directory: &str| -> BTreeSet<String> {
        links(&pages[page]).iter().map(|link| join(directory, link.split('#').next().unwrap_or_default())).collect()
    };
    assert!(paths("README.md", "").contains(CONTENTS), "README.md has no link to {CONTENTS}");
    let listed = paths(CONTENTS, "docs");
    for page in pages.keys().filter(|name| name.starts_with("docs/") && *name != CONTENTS) {
        assert!(listed.contains(page), "{CONTENTS} has no link to {page}");
    }
}

#[test]
fn examples_cite_existing_pages() {
    let mut count = 0;
    for entry in fs::read_dir(repository().join("docs/examples")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let pages = text.split_whitespace().filter(|word| word.starts_with("docs/"));
        for page in pages.map(|word| word.trim_end_matches(['.', ',', ')'])) {
            assert!(repository().join(page).exists(), "{}: {page} is missing", path.display());
            count += 1;
        }
    }
    assert!(count > 0, "no example cites a page");
}

/// The errors of this link on `docs/one.md`. `docs/two.md` has the heading "Ports, and *why*".
fn judged(link: &str) -> Vec<String> {
    let two = "# Two\n\n```\n# not a heading\n```\n\n## Ports, and `why`\n";
    let text = format!("# One\n\nSee [it]({link}).\n");
    let page = |name: &str| match name {
        "docs/one.md" => Some(text.clone()),
        "docs/two.md" => Some(two.to_owned()),
        _ => None,
    };
    broken("docs/one.md", &text, page, |path| ["docs/two.md", "LICENSE"].contains(&path))
}

#[test]
fn good_links_pass() {
    for link in ["two.md", "../LICENSE", "#one", "two.md#ports-and-why", "https://example.com/no"] {
        assert_eq!(judged(link), Vec::<String>::new(), "{link}");
    }
}

#[test]
fn bad_links_are_named() {
    for link in ["three.md", "LICENSE", "#two", "two.md#ports", "two.md#not-a-heading", "three.md#one"] {
        assert_eq!(judged(link), [format!("docs/one.md: {link}")]);
    }
}

#[test]
fn code_has_no_links() {
    assert_eq!(links("`[a](b)` and\n```\n[c](d)\n```\n[e](f), `over two\nlines` and [g](h)"), ["f", "h"]);
}
