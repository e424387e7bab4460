//! What the image has for its administrator, and what it has not for others; and
//! the container images that it carries.

use contract::image::{CARRIED, reference};
use contract::properties::GATEWAY;
use scenarios::scenario::{MOMENT, Scenario};

/// Looks at a node that is ready.
pub fn an_administrator_finds_the_tools_and_nobody_else_gets_rights(scenario: &Scenario) {
    let admin = |command: &str| scenario.inside("cp1", &["runuser", "-u", "admin", "--", "sh", "-c", command]);

    let gateway = scenario.properties("cp1")[GATEWAY].clone();
    let answer = admin(&format!("ping -c 1 -W 10 {gateway}"));
    assert!(answer.contains("1 received"), "{answer}");
    let containers = admin("sudo -n crictl ps");
    assert!(containers.contains("kube-apiserver") && containers.contains("Running"), "{containers}");
    let devices = admin("sudo -n tcpdump --list-interfaces");
    assert!(devices.contains("eth0"), "{devices}");
    let privileged = scenario.inside("cp1", &["find", "/usr", "/etc", "-xdev", "-type", "f", "-perm", "/6000"]);
    assert_eq!(privileged.trim(), "/usr/bin/sudo");
    let interpreters = ".*/s?bin/(perl|python|ruby|tclsh)[^/]*";
    let found =
        scenario.inside("cp1", &["find", "/usr", "-xdev", "-regextype", "posix-extended", "-regex", interpreters]);
    assert_eq!(found, "", "interpreters that an intruder would use");
}

/// It is brought back, safe from the kubelet's clearing away.
pub fn a_carried_container_image_that_went_missing_is_brought_back(scenario: &Scenario) {
    let name = reference("coredns", CARRIED);
    let images = || -> anyhow::Result<serde_json::Value> {
        let text = scenario.lab().run_inside("cp1", &["crictl", "images", "--output=json"], MOMENT)?;
        Ok(serde_json::from_str(&text)?)
    };
    let is_pinned = || -> anyhow::Result<bool> {
        let images = images()?;
        let mut images = images["images"].as_array().into_iter().flatten();
        let own =
            images.find(|image| image["repoTags"].as_array().is_some_and(|tags| tags.contains(&name.as_str().into())));
        Ok(own.is_some_and(|image| image["pinned"] == true))
    };
    assert!(is_pinned().unwrap(), "{:?}", images());
    scenario.inside("cp1", &["ctr", "--namespace=k8s.io", "images", "rm", "--sync", &name]);
    assert!(!is_pinned().unwrap(), "{:?}", images());
    scenario.inside("cp1", &["systemctl", "restart", "kaas-agent.service"]);
    scenario.wait("the image to be back", MOMENT, is_pinned);
}
