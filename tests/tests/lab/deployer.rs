//! The deployer's access: by the key and the fingerprints that the hypervisor shows, until `configure` removes the key.

pub mod long {
    use contract::deployer::{Fingerprint, Fingerprints, PrivateKey, USERS};
    use contract::properties::DEPLOYER_PUBLIC_KEY;
    use fleet::nodes::{Deployer, DeployerError};
    use scenarios::endpoint;
    use scenarios::node_swap::Node;
    use scenarios::scenario::{MOMENT, Scenario, Setting};

    use crate::maintenance::{CHECK, has};

    const SHOWN: &str = "/run/host/kaas/fingerprints.json";

    /// The lab uses the deployer's access. It exists once the cluster has formed, ends with the key, and returns with it.
    pub fn deployer_is_admitted_until_the_key_changes() {
        let scenario = Scenario::ready_one(&Setting::one("deployer"));
        let lab = scenario.lab();
        let own = scenario.properties("cp1")[DEPLOYER_PUBLIC_KEY].clone();
        let whoami = || lab.kubectl(&["auth", "whoami", "--output=jsonpath={.status.userInfo.username}"]);
        let user = whoami().unwrap();
        assert!(user.starts_with(USERS), "{user}");
        let noted = scenario.inside("cp1", &["cat", "/data/kaas/issued.log"]);
        assert!(noted.contains(&user), "{noted}");
        let journal = scenario.inside("cp1", &["journalctl", "--unit=kaas-agent", "--output=cat"]);
        assert!(journal.contains("issued an administrator's certificate for the deployer's key"), "{journal}");
        let asked = Node::of(&scenario, "cp1").unwrap();
        asked.facts().unwrap();

        // A program in the VM writes others; the agent tells, and writes its own again.
        let other = Fingerprint::of(b"another cluster's");
        let shown = scenario.inside("cp1", &["cat", SHOWN]);
        let forged = Fingerprints { ca: other, endpoint: other }.to_string();
        scenario.inside("cp1", &["sh", "-c", &format!("echo '{forged}' > {SHOWN}")]);
        scenario.wait("the agent to tell of it", CHECK, || has(&scenario, "cp1", "fingerprints.changed"));
        assert_eq!(scenario.inside("cp1", &["cat", SHOWN]), shown);

        // A key that the lab does not have replaces it.
        let new = PrivateKey::draw().unwrap();
        let public = new.public().unwrap();
        scenario.inside("cp1", &["kaas-agent", "configure", &format!("{DEPLOYER_PUBLIC_KEY}={public}")]);
        scenario.wait("the endpoint to take the former key's certificate no more", MOMENT, || {
            Ok(asked.facts().is_err_and(|refused| format!("{refused:#}").contains("another client certificate")))
        });
        scenario.wait("the former deployer to have no rights in Kubernetes", MOMENT, || {
            Ok(lab.kubectl(&["get", "nodes"]).is_err_and(|refused| format!("{refused:#}").contains("Forbidden")))
        });
        let (node, shown) = (endpoint::address(&scenario, "cp1"), Fingerprints::read(shown.as_bytes()).unwrap());
        let code = |key: PrivateKey| {
            let deployer = Deployer::from_inside(key, lab.network_namespace()).unwrap();
            match deployer.wait(deployer.credentials(node, &shown)) {
                Ok(_) => None,
                Err(DeployerError::Refused { refused, .. }) => Some(refused.code),
                Err(DeployerError::Failed(error)) => panic!("{error:#}"),
            }
        };
        assert_eq!(code(PrivateKey::draw().unwrap()).as_deref(), Some("deployer.other-key"));
        assert_eq!(code(new), None);

        scenario.inside("cp1", &["kaas-agent", "configure", &format!("{DEPLOYER_PUBLIC_KEY}={own}")]);
        scenario.wait("the lab to be in again", MOMENT, || Ok(whoami()? == user && lab.ready_nodes()?.len() == 1));
    }
}
