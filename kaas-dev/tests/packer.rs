//! The Packer template: it is valid HCL, and its commands are calls of `kaas-dev`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use hcl::eval::{Context, Evaluate};
use hcl::{Body, Map, Value};

const TEMPLATE: &str = include_str!("../../packer/site.pkr.hcl");

/// The default of each variable.
fn defaults(template: &Body) -> Map<String, Value> {
    let variables = template.blocks().filter(|block| block.identifier() == "variable");
    let default = |block: &hcl::Block| {
        let default = block.body().attributes().find(|attribute| attribute.key() == "default").expect("a default");
        (block.labels()[0].as_str().to_owned(), default.expr().evaluate(&Context::new()).expect("a value"))
    };
    variables.map(default).collect()
}

/// A list of strings of the only provisioner, with the variables replaced, as Packer passes it.
fn list(template: &Body, key: &str, values: &Map<String, Value>) -> Vec<String> {
    let build = template.blocks().find(|block| block.identifier() == "build").expect("a build");
    let provisioner = build.body().blocks().find(|block| block.identifier() == "provisioner").expect("a provisioner");
    assert_eq!(provisioner.labels()[0].as_str(), "shell-local");
    let found = provisioner.body().attributes().find(|attribute| attribute.key() == key).expect(key);
    let mut context = Context::new();
    context.declare_var("var", values.clone());
    let Value::Array(items) = found.expr().evaluate(&context).expect(key) else { panic!("{key} is no list") };
    items.iter().map(|item| item.as_str().expect("a string").to_owned()).collect()
}

/// The arguments of each call of `kaas-dev` in the template. `values` differ from the defaults.
fn runs(directory: &Path, values: &[(&str, &str)]) -> Vec<Vec<String>> {
    let template: Body = hcl::parse(TEMPLATE).expect("a template in HCL");
    let mut all = defaults(&template);
    for (name, value) in values {
        assert!(all.insert((*name).to_owned(), Value::from(*value)).is_some(), "there is no variable {name}");
    }
    let (program, said) = (directory.join("kaas-dev"), directory.join("said"));
    fs::write(&program, "#!/bin/sh\nprintf '%s\\t' \"$@\" >>said\necho >>said\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(&said, "").unwrap();
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("/bin/sh");
    shell.current_dir(directory).env("PATH", path).args(["-e", "-c", &list(&template, "inline", &all).join("\n")]);
    for variable in list(&template, "environment_vars", &all) {
        let (name, value) = variable.split_once('=').expect("a variable of the environment");
        shell.env(name, value);
    }
    let ran = shell.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let calls = fs::read_to_string(said).unwrap();
    calls.lines().map(|call| call.trim_end_matches('\t').split('\t').map(str::to_owned).collect()).collect()
}

#[test]
fn template_locks_the_sites_packages_once_and_builds() {
    let directory = tempfile::tempdir().unwrap();
    let spec = "packer/site/control-plane.toml";
    let lock = ["image", "lock", "--keep-included", spec].map(str::to_owned).to_vec();
    let build = ["image", "build", spec, "--to-directory", "build"].map(str::to_owned).to_vec();
    assert_eq!(runs(directory.path(), &[]), [lock, build.clone()]);
    fs::create_dir_all(directory.path().join("packer/site")).unwrap();
    fs::write(directory.path().join("packer/site/control-plane.lock"), "").unwrap();
    assert_eq!(runs(directory.path(), &[]), [build]);
}

/// A test of `image` reads both specs.
#[test]
fn commands_in_the_templates_header_are_valid() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let lines: Vec<&str> = TEMPLATE.lines().filter_map(|line| line.strip_prefix("#   packer build ")).collect();
    assert!(lines.len() > 1, "how it is called is said otherwise now");
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let given = words.windows(2).filter(|pair| pair[0] == "-var").map(|pair| pair[1].split_once('=').unwrap());
        let given: Vec<(&str, &str)> = given.collect();
        let directory = tempfile::tempdir().unwrap();
        let built = runs(directory.path(), &given).pop().unwrap();
        assert!(workspace.join(&built[2]).is_file(), "{line}: there is no {}", built[2]);
        assert!(workspace.join(words.last().unwrap()).is_file(), "{line}");
    }
}

#[test]
fn command_accepts_all_arguments_of_the_template() {
    let directory = tempfile::tempdir().unwrap();
    let values = [
        ("spec", "my site.toml"),
        ("version", "1.2.3"),
        ("sign_key", "key.pem"),
        ("sign_certificate", "our.pem"),
        ("output", "out"),
    ];
    let calls = runs(directory.path(), &values);
    let expected =
        "image build my site.toml --to-directory out --version 1.2.3 --sign-key key.pem --sign-certificate our.pem";
    assert_eq!(calls.last().unwrap().join(" "), expected);
    for call in calls {
        // It reports wrong arguments before it prints its help.
        let known = Command::new(env!("CARGO_BIN_EXE_kaas-dev")).args(&call).arg("--help").output().unwrap();
        assert!(known.status.success(), "{call:?}: {}", String::from_utf8_lossy(&known.stderr));
    }
}
