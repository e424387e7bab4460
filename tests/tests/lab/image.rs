//! The tools of the image for administrators, the rights of other users, and the container images of the image.

use contract::image::{CARRIED, reference};
use contract::properties::{GATEWAY, REGISTRY_MIRROR};
use scenarios::scenario::{MOMENT, Scenario};

/// Looks at a node that is ready.
pub fn administrators_have_tools_and_others_no_rights(scenario: &Scenario) {
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
    let tools = scenario.inside("cp1", &["cat", "/etc/vmware-tools/tools.conf"]);
    assert!(tools.contains("[guestoperations]\ndisabled=true\n"), "programs are run by way of the hypervisor: {tools}");
    assert!(tools.contains("[deployPkg]\nenable-customization=false\n"), "vCenter customizes guests: {tools}");
    let show = ["systemctl", "show", "--property=LoadState,StartLimitIntervalUSec", "--value"];
    let debians = ["chronyd-restricted", "systemd-logind", "systemd-networkd", "systemd-resolved", "systemd-udevd"];
    let limits = scenario.inside("cp1", &[&show[..], &debians[..]].concat());
    let count = |word: &str| limits.split_whitespace().filter(|said| *said == word).count();
    assert_eq!([count("loaded"), count("0")], [debians.len(); 2], "start limits of Debian's units: {limits}");
}

/// Keys at the console do not restart the node, and reach only the console: no terminal and no serial line has a login
/// prompt.
pub fn keys_at_the_console_restart_nothing(scenario: &Scenario) {
    let begun = || scenario.inside("cp1", &["cut", "--delimiter= ", "--fields=22", "/proc/1/stat"]);
    let before = begun();
    // The kernel's signal to systemd for Ctrl+Alt+Del, more than seven times within two seconds (systemd-system.conf(5)).
    scenario.inside("cp1", &["sh", "-ec", "for _ in 1 2 3 4 5 6 7 8 9 10; do kill -INT 1; done"]);
    let jobs = scenario.inside("cp1", &["systemctl", "list-jobs", "--no-legend"]);
    assert!(!jobs.contains("reboot.target") && !jobs.contains("shutdown.target"), "{jobs}");
    assert_eq!(begun(), before, "Ctrl+Alt+Del restarted the node");
    let state = ["systemctl", "show", "--property=LoadState", "--value", "ctrl-alt-del.target"];
    assert_eq!(scenario.inside("cp1", &state).trim(), "masked");
    let prompts = "find /usr /etc /run/systemd -xdev '(' -name '*getty*.service' -o -name agetty -o -name sulogin \
                   -o -name login -path '*bin/*' -o -name debug-shell.service ')'";
    assert_eq!(scenario.inside("cp1", &["sh", "-ec", prompts]), "", "login prompts beside the console");
    let sysrq = "grep --no-filename '^kernel.sysrq' /usr/lib/sysctl.d/60-kaas.conf";
    assert_eq!(scenario.inside("cp1", &["sh", "-ec", sysrq]).trim(), "kernel.sysrq = 0");
}

/// A registry mirror serves all registries as soon as an administrator sets it, until the administrator removes it. The
/// container runtime does not restart.
pub fn registry_mirror_changes_without_a_restart_of_containerd(scenario: &Scenario) {
    const MIRRORS: &str = "/etc/containerd/certs.d/_default/hosts.toml";
    let process = || {
        let show = ["systemctl", "show", "--property=MainPID", "--value", "containerd.service"];
        scenario.inside("cp1", &show).trim().to_owned()
    };
    let configure = |value: &str| {
        scenario.inside("cp1", &["kaas-agent", "configure", &format!("{REGISTRY_MIRROR}={value}")]);
    };
    let before = process();
    assert!(before.parse::<u32>().is_ok_and(|process| process > 1), "the container runtime is the process {before:?}");
    // An address for documentation (RFC 5737): no host gets a request.
    configure("https://192.0.2.1");
    scenario.wait("the registry mirror to stand for all registries", MOMENT, || {
        Ok(scenario.lab().run_inside("cp1", &["grep", "--quiet", "https://192.0.2.1", MIRRORS], MOMENT).is_ok())
    });
    configure("");
    scenario.wait("the registry mirror to be gone", MOMENT, || {
        Ok(scenario.lab().run_inside("cp1", &["test", "!", "-e", MIRRORS], MOMENT).is_ok())
    });
    assert_eq!(process(), before, "the container runtime was started again");
}

/// It is brought back, safe from the kubelet's clearing away.
pub fn missing_container_image_is_imported_again(scenario: &Scenario) {
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
