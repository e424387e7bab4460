//! The table alone.

use super::super::site::deployment;
use super::*;

/// The mistakes of a text alone, without the file's name.
fn mistakes(text: &str) -> Vec<String> {
    let Err(mistakes) = ClusterFile::parse(Path::new("cluster.toml"), text.to_owned()) else { return Vec::new() };
    mistakes.0.iter().map(|mistake| mistake.to_string().replacen("cluster.toml:", "", 1)).collect()
}

#[test]
fn example_names_objects_by_their_paths() {
    let file = file(EXAMPLE);
    let names = vcenter(&file).names();
    assert_eq!(
        (names.datacenter.as_str(), names.folder.as_str(), names.resource_pool.as_str(), names.datastore.as_str()),
        ("Datacenter", "kaas/control", "Cluster", "datastore1")
    );
    assert_eq!((names.networks, names.templates), (vec!["VM Network".to_owned()], None));
    assert_eq!(vcenter(&file).journal_of("control").to_string(), "[datastore1] kaas/control");
    assert_eq!(file.provider.words(), "the folder kaas/control of Datacenter on vcenter.example.com");
    assert_eq!(file.snapshots, Path::new("control.snapshots"));
}

#[test]
fn commented_keys_of_the_example_are_valid() {
    let text = with(&[
        ("# thumbprint", "thumbprint"),
        ("# resource-pool = \"kaas\"", "resource-pool = \"kaas/control\""),
        ("# other-folders", "other-folders"),
        ("# templates-folder", "templates-folder"),
        ("datastore = \"datastore1\"\n", "datastore = \"Pod/one%2ftwo\"\n"),
        ("# restart-priority", "restart-priority"),
        ("# storage-policy", "storage-policy"),
        ("# managed-by", "managed-by"),
        ("# deployment", "deployment"),
        ("# [provider.vsphere.limits]", "[provider.vsphere.limits]"),
        ("# requests", "requests"),
        ("# task-minutes", "task-minutes"),
    ]);
    assert_eq!(mistakes(&text), [""; 0]);
    let file = file(&text);
    let vcenter = vcenter(&file);
    let names = vcenter.names();
    assert_eq!(names.resource_pool, "Cluster/Resources/kaas/control");
    assert_eq!((names.different_hosts, names.managed_by.as_deref()), (true, Some("org.example.kaas")));
    assert_eq!(names.storage_policy.as_deref(), Some("vSAN Default Storage Policy"));
    assert_eq!(names.restart, Some(::vsphere::RestartPriority::High));
    assert_eq!(vcenter.journal_of("control").to_string(), "[one/two] kaas/control");
    let text = with(&[("# journal = \"[datastore1] kaas/control\"", "journal = \"[other] k/c\"")]);
    assert_eq!(mistakes(&text), [""; 0]);
}

#[test]
fn each_mistake_is_reported_at_its_line() {
    let said = |from: &str, to: &str, part: &str| {
        let text = with(&[(from, to)]);
        let told = mistakes(&text);
        let at = to.lines().next().unwrap();
        let expected = line(&text, at) + "provider.vsphere.";
        assert!(told.len() == 1 && told[0].contains(part), "{part} is not {told:#?}");
        assert!(told[0].starts_with(&expected), "{} is not at {expected}", told[0]);
    };
    let server = "server = \"vcenter.example.com\"";
    for wrong in ["https://vcenter.example.com", "vcenter.example.com/sdk", "a b", "fe80::1:443"] {
        said(server, &format!("server = \"{wrong}\""), "give a host name or address alone");
    }
    said("# ca-file = \"vcenter-ca.pem\"", "ca-file = \"none.pem\"", "none.pem, which cannot be read: No such file");
    said("# ca-file = \"vcenter-ca.pem\"", "ca-file = \"Cargo.toml\"", "Cargo.toml, which holds no certificate in PEM");
    said("# thumbprint = \"00:11", "thumbprint = \"11", "a thumbprint has 64 hexadecimal digits");
    let password = "password = { prompt = \"Password of kaas@vsphere.local\" }";
    said(password, "password = \"secret\"", "has no place in this file");
    said("cluster = \"Cluster\"", "cluster = \"Cluster/\"", "give a name, or names with / between them");
    said("folder = \"kaas/control\"", "folder = \"kaas//control\"", "give a name, or names with / between them");
    said("datastore = \"datastore1\"\n", "datastore = \"[datastore1]\"\n", "give a name");
    said("# journal = \"[datastore1] kaas/control\"", "journal = \"kaas/control\"", "is no path on a datastore");
    said("# journal = \"[datastore1] kaas/control\"", "journal = \"[datastore1]\"", "give a directory on a datastore");
    said(
        "# journal = \"[datastore1] kaas/control\"",
        "journal = \"[datastore1] ../x\"",
        "give a directory on a datastore",
    );
    said("networks = [\"VM Network\"]", "networks = []", "is missing: give the networks");
    said("clones = \"linked\"", "clones = \"instant\"", "give linked or full");
    said("anti-affinity = true", "anti-affinity = \"yes\"", "expects true or false");
    said("# restart-priority = \"high\"", "restart-priority = \"first\"", "give one of low, medium, high, highest");
    said(
        "# storage-policy = \"vSAN Default Storage Policy\"",
        "storage-policy = \" \"",
        "give the name of a storage policy",
    );
    said("# deployment = \"8f14e45f", "deployment = \"45f", "give a UUID");
    let limits = "# [provider.vsphere.limits]\n# Requests to the vCenter at once.\n# requests = 8";
    let text = with(&[(limits, "[provider.vsphere.limits]\nrequests = 0")]);
    assert!(mistakes(&text)[0].contains("limits.requests: is 0: give a number of requests at once, 1 to 64"));
}

#[test]
fn all_missing_keys_are_reported_at_once() {
    let head = EXAMPLE.split("[provider.vsphere]").next().unwrap();
    let told = mistakes(&format!(
        "{head}[provider.vsphere]\nca-file = \"Cargo.toml\"\nthumbprint = \"00\"\nserver-name = \"x\"\n"
    ));
    for part in [
        "server: is missing",
        "user: is missing",
        "password: is missing",
        "datacenter: is missing",
        "cluster: is missing",
    ] {
        assert!(told.iter().any(|line| line.contains(part)), "{part} is not in {told:#?}");
    }
    for part in ["folder: is missing", "datastore: is missing", "networks: is missing", "server-name: is no key of"] {
        assert!(told.iter().any(|line| line.contains(part)), "{part} is not in {told:#?}");
    }
    assert!(told.iter().any(|line| line.contains("thumbprint: is given together with ca-file")), "{told:#?}");
    assert!(mistakes(&format!("{head}[provider]\n"))[0].ends_with("give a table [provider.vsphere]"));
    let unknown = mistakes(&format!("{EXAMPLE}\n[provider.lab]\nname = \"x\"\n"));
    assert!(unknown.len() == 1 && unknown[0].contains("known are vsphere"), "{unknown:#?}");
}

#[test]
fn journal_inside_another_journal_is_refused() {
    for journal in
        ["[datastore1] kaas/000007", "[datastore1] 000007/control", "[datastore1] kaas/../x", "[datastore1] "]
    {
        let text = EXAMPLE.replacen("[provider.vsphere]", &format!("[provider.vsphere]\njournal = \"{journal}\""), 1);
        let told = mistakes(&text);
        assert!(told.iter().any(|line| line.contains("provider.vsphere.journal: ")), "{journal}: {told:#?}");
    }
    let text = EXAMPLE.replacen("[provider.vsphere]", "[provider.vsphere]\njournal = \"[datastore1] kaas/7\"", 1);
    assert!(!mistakes(&text).iter().any(|line| line.contains("journal")));
}

#[test]
fn deployment_id_depends_on_vcenter_journal_and_folder() {
    let about = |id: &str| ::vsphere::About {
        full_name: "VMware vCenter Server 8.0.3".to_owned(),
        api_type: "VirtualCenter".to_owned(),
        api_version: "8.0.3.0".to_owned(),
        instance_uuid: id.to_owned(),
    };
    let in_folder = |id: &str, journal: &str, datacenter: &str, folder: &str| {
        deployment(&about(id), &journal.parse().unwrap(), datacenter, folder)
    };
    let of = |id: &str, journal: &str| in_folder(id, journal, "DC", "a/b");
    let one = of("a", "[ds] kaas/control");
    // Stamps of VMs carry this ID: a later version must compute the same one.
    assert_eq!(one.to_string(), of("a", "[ds]kaas/control").to_string());
    assert_eq!(one.to_string(), "859d89d2-5275-57ac-9edc-acbbd7b2e6ec");
    // A description that was copied for another cluster, with another folder.
    assert_ne!(one, in_folder("a", "[ds] kaas/control", "DC", "a/c"));
    assert_eq!(one, in_folder("a", "[ds] kaas/control", "/DC/", "/a/b"));
    assert!(one != of("b", "[ds] kaas/control") && one != of("a", "[ds] kaas/other"));
}
