//! Three control nodes on the container engine.

use std::time::{Duration, Instant};

use agent::properties as keys;
use scenarios::scenario::{ALL, FORMING, Scenario, Setting, with};
use scenarios::workload::Workload;
use scenarios::{certificates, endpoint};

const FAILOVER: Duration = Duration::from_secs(120);
const MOMENT: Duration = Duration::from_secs(90);
/// Twice the pace of the duty that renews certificates.
const RENEWAL: Duration = Duration::from_secs(20 * 60);
/// More than systemd gives a unit to stop.
const SHUTTING_DOWN: Duration = Duration::from_secs(180);

/// The node that has the virtual address on its interface, if one has.
fn holder(scenario: &Scenario) -> anyhow::Result<Option<&'static str>> {
    let address = format!("inet {}/", scenario.lab().plan().api);
    let holds = |node: &str| {
        let seen = scenario.lab().run_inside(node, &["ip", "-4", "address", "show"], MOMENT);
        seen.is_ok_and(|seen| seen.contains(&address))
    };
    Ok(ALL.into_iter().find(|node| holds(node)))
}

mod short {
    use super::*;

    /// The life of a cluster: it forms, works, survives the loss of the node
    /// with the virtual address, and never lets a blank node start another one.
    #[test]
    fn three_nodes_form_one_cluster_that_survives() {
        let scenario = Scenario::formed("three");
        let lab = scenario.lab();
        for node in ALL {
            let erased = lab.run_inside(node, &["test", "!", "-e", "/data/kaas/secret"], MOMENT);
            assert!(erased.is_ok(), "{node} keeps the deployment secret though the cluster is complete");
        }
        let identity = scenario.cluster_identity();
        let members = scenario.etcd_members("cp1");
        assert_eq!(members.len(), 3, "{members:?}");

        let workload = Workload::start(&scenario, "cp1", MOMENT);
        workload.is_reached_by_address_from("cp2");
        workload.is_reached_by_name_from("cp3");
        // A kube-proxy that starts again finds its rules and keeps them.
        scenario.inside("cp3", &["systemctl", "restart", "kube-proxy.service"]);
        workload.is_reached_by_name_from("cp3");

        // Load balancers and monitoring ask each node at its own address.
        endpoint::issue(&scenario, "cp1", "administrator");
        for node in ALL {
            let answer = endpoint::ask(&scenario, "cp1", node, "/livez", false);
            assert!(answer.contains(" 200 ") && answer.trim_end().ends_with("ok"), "{answer}");
        }
        scenario.wait("cp2's metrics to tell of cp3's etcd", MOMENT, || {
            let metrics = endpoint::ask(&scenario, "cp1", "cp2", "/metrics", true);
            Ok(metrics.contains("\nkaas_etcd_member_healthy{member=\"cp3\"} 1"))
        });
        let refused = endpoint::ask(&scenario, "cp1", "cp2", "/metrics", false);
        assert!(refused.contains(" 401 "), "{refused}");

        scenario.kubectl(&["create", "configmap", "before", "--from-literal=written=yes"]);
        let lost = scenario.obtain("a node to hold the virtual address", MOMENT, || holder(&scenario));
        scenario.cut(lost);
        scenario.reached(&format!("{lost}, which held the virtual address, is cut off"));
        scenario.wait("the API to answer through the virtual address again", FAILOVER, || {
            let written = ["get", "configmap", "before", "--output=jsonpath={.data.written}"];
            Ok(lab.kubectl(&written)? == "yes")
        });
        assert_eq!(scenario.cluster_identity(), identity);
        scenario.kubectl(&["create", "configmap", "meanwhile", "--from-literal=written=yes"]);

        scenario.power_on(&[lost]);
        scenario.soon_says(lost, "kaas: ready");
        scenario.all_ready(FAILOVER);
        assert_eq!(scenario.etcd_members(lost), members);

        // The first node comes back blank, its OVF environment as on the first day.
        lab.shut_down("cp1", SHUTTING_DOWN).unwrap();
        let disk = lab.disks("cp1").unwrap()[0];
        let blank = lab.create_disk(4 << 30).unwrap();
        lab.detach_disk("cp1", disk).unwrap();
        lab.attach_disk("cp1", blank).unwrap();
        scenario.power_on(&["cp1"]);
        scenario.soon_says("cp1", "kaas: error cluster.exists: ");
        scenario.ready(&["cp2", "cp3"], MOMENT);
        assert_eq!(scenario.cluster_identity(), identity);
        assert_eq!(scenario.etcd_members("cp2"), members);
        let etcd = lab.run_inside("cp1", &["systemctl", "is-active", "etcd.service"], MOMENT);
        assert!(etcd.is_err(), "a blank node beside a living cluster has started etcd");

        // Its own disk brings it back.
        scenario.cut("cp1");
        lab.detach_disk("cp1", blank).unwrap();
        lab.attach_disk("cp1", disk).unwrap();
        scenario.power_on(&["cp1"]);
        scenario.all_ready(FAILOVER);
        assert_eq!(scenario.cluster_identity(), identity);
        assert_eq!(scenario.etcd_members("cp1"), members);
    }

    /// Two of three wait for the third and say so; it is cut off again while
    /// the cluster forms, and joins when it comes back. How long it was away is of no
    /// matter, so nothing is made to expire here: it joins without a token, and with the
    /// authorities of its bundle it signs its certificates itself.
    #[test]
    fn a_node_cut_off_while_forming_joins_when_it_returns() {
        let scenario = Scenario::prepare(&Setting { name: "late", nodes: 3, hardware: None, properties: &[] });
        let lab = scenario.lab();

        scenario.power_on(&["cp1", "cp2"]);
        for node in ["cp1", "cp2"] {
            scenario.soon_says(node, "cp3");
        }

        scenario.power_on(&["cp3"]);
        scenario.wait("etcd to start on cp3", MOMENT, || {
            Ok(lab.run_inside("cp3", &["systemctl", "is-active", "etcd.service"], MOMENT).is_ok())
        });
        scenario.cut("cp3");
        scenario.reached("cp3 is cut off");
        scenario.ready(&["cp1", "cp2"], FORMING);
        let identity = scenario.cluster_identity();

        scenario.power_on(&["cp3"]);
        scenario.all_ready(FORMING);
        assert_eq!(scenario.cluster_identity(), identity);
        assert_eq!(scenario.etcd_members("cp3").len(), 3);
        scenario.wait("the rendezvous to have closed for good", MOMENT, || {
            let listening =
                lab.run_inside("cp1", &["ss", "--listening", "--tcp", "--numeric", "--no-header"], MOMENT)?;
            Ok(!listening.contains(":9443 "))
        });
    }
}

mod long {
    use std::collections::BTreeSet;

    use super::*;

    /// The steps that a node has named on its console since it was powered on.
    fn steps(console: &str) -> BTreeSet<String> {
        let said = console.lines().filter_map(|line| line.trim_end().split_once("kaas: ").map(|(_, said)| said));
        // A step reads `starting etcd (14/28)`, with what it waits for after a colon.
        let named = said.filter_map(|said| said.split_once(" (").filter(|(_, rest)| rest.contains('/')));
        named.map(|(name, _)| name.to_owned()).collect()
    }

    /// Bad properties are mended on the node itself, and it goes on without
    /// being deployed again. Afterwards what may still change can be changed.
    #[test]
    fn bad_properties_are_mended_on_the_node() {
        let scenario = Scenario::prepare(&Setting { name: "mend", nodes: 1, hardware: None, properties: &[] });
        let lab = scenario.lab();
        let good = lab.environment("cp1").unwrap();
        let bad = with(&with(&good, keys::DEPLOYMENT_SECRET, "password"), keys::PATIENCE, "much");
        lab.insert_environment("cp1", bad.as_bytes()).unwrap();
        scenario.power_on(&["cp1"]);
        scenario.soon_says("cp1", "2 problems must be mended");

        // One alone is not enough: the rest is said again, and nothing is saved.
        let said = scenario.inside("cp1", &["sh", "-c", "kaas-agent configure patience=2 || true"]);
        assert!(said.contains("Nothing was changed") && said.contains("deployment-secret.weak"), "{said}");
        let secret = &scenario.properties("cp1")[keys::DEPLOYMENT_SECRET];
        let both = format!("printf 'deployment-secret=%s\\npatience=2\\n' '{secret}' | kaas-agent configure --from -");
        let said = scenario.inside("cp1", &["sh", "-c", &both]);
        assert!(said.starts_with("Saved."), "{said}");
        scenario.all_ready(FORMING);
        let kept = scenario.inside("cp1", &["ls", "/run/kaas"]);
        assert!(!kept.contains("amendments.json"), "{kept}");

        // What may change on a formed node is changed, and what may not is refused.
        let said = scenario.inside("cp1", &["kaas-agent", "configure", "search-domains=lab.example.com"]);
        assert!(said.contains("was restarted"), "{said}");
        scenario.wait("the search domain to be used", MOMENT, || {
            Ok(lab.run_inside("cp1", &["resolvectl", "domain"], MOMENT)?.contains("lab.example.com"))
        });
        let said = scenario.inside("cp1", &["sh", "-c", "kaas-agent configure node-name=other || true"]);
        assert!(said.contains("property.fixed"), "{said}");
        scenario.soon_says("cp1", "kaas: ready");
    }

    /// A node loses its power as soon as it reaches each step of forming; once
    /// it is left in peace it becomes Ready, with one etcd member.
    #[test]
    fn a_node_that_is_cut_off_at_every_step_forms_its_cluster() {
        let scenario = Scenario::prepare(&Setting { name: "cuts", nodes: 1, hardware: None, properties: &[] });
        let lab = scenario.lab();
        let mut cut = BTreeSet::new();
        loop {
            scenario.power_on(&["cp1"]);
            let reached = scenario.obtain("another step, or a node that is ready", FORMING, || {
                let console = lab.console_text("cp1")?;
                let new: Vec<String> = steps(&console).difference(&cut).cloned().collect();
                Ok((!new.is_empty() || console.contains("kaas: ready")).then_some(new))
            });
            if reached.is_empty() {
                break;
            }
            scenario.cut("cp1");
            scenario.reached(&format!("cut off at: {}", reached.join(", ")));
            cut.extend(reached);
        }
        assert!(cut.len() > 10, "only {cut:?}");
        scenario.all_ready(FORMING);
        assert_eq!(scenario.etcd_members("cp1").len(), 1);
        Workload::start(&scenario, "cp1", MOMENT).is_reached_by_name_from("cp1");
    }

    /// Certificates that end soon are renewed while the cluster works: the node gives the virtual
    /// address up first, and who writes through it hardly notices.
    #[test]
    fn certificates_are_renewed_in_a_running_cluster() {
        let scenario = Scenario::formed("renew");
        let node = scenario.obtain("a node to hold the virtual address", MOMENT, || holder(&scenario));
        certificates::end_in_a_month(&scenario, node);
        let listed = || scenario.inside(node, &["kaas-agent", "certificate", "list"]);
        assert!(listed().contains("ends in 29 days"), "{}", listed());

        // The duty looks every ten minutes.
        let (mut tries, mut failed, mut gap, mut well) = (0_u32, 0_u32, Duration::ZERO, Instant::now());
        scenario.wait("the certificates to be renewed and the control plane to run with them", RENEWAL, || {
            tries += 1;
            match scenario.lab().kubectl(&["annotate", "node", node, "--overwrite", &format!("scenario={tries}")]) {
                Ok(_) => (gap, well) = (gap.max(well.elapsed()), Instant::now()),
                Err(_) => failed += 1,
            }
            let journal = scenario.inside(node, &["journalctl", "--unit=kaas-agent", "--output=cat"]);
            let (_, after) = journal.split_once("starts again with renewed credentials").unwrap_or_default();
            let age = scenario.inside(
                node,
                &["sh", "-c", "ps -o etimes= -p $(pgrep --oldest --full '^kube-apiserver') || echo 99999"],
            );
            Ok(!after.is_empty() && age.trim().parse::<u64>()? < 120 && scenario.lab().ready_nodes()?.len() == 3)
        });
        println!("renew: {tries} writes, {failed} failed, at most {:.1} s between two", gap.as_secs_f64());
        // The kubelet sees to its rotating one itself.
        let old = |line: &&str| line.ends_with("ends in 29 days") && !line.starts_with("kubelet-client");
        assert_eq!(listed().lines().find(old), None);
        assert_ne!(holder(&scenario).unwrap(), Some(node), "the virtual address was not given up");
        scenario.ready(&ALL, MOMENT);
    }

    /// A node that was off for so long that nothing it holds is valid any more
    /// is the same node again, without anybody's help.
    #[test]
    fn a_node_whose_certificates_have_expired_heals_itself_at_boot() {
        let scenario = Scenario::prepare(&Setting { name: "expired", nodes: 1, hardware: None, properties: &[] });
        scenario.power_on(&["cp1"]);
        scenario.all_ready(FORMING);
        let identity = scenario.cluster_identity();
        scenario.wait("the kubelet to have a certificate of its own making", MOMENT, || {
            Ok(scenario.inside("cp1", &["kaas-agent", "certificate", "list"]).contains("kubelet-client"))
        });
        certificates::expire(&scenario, "cp1");
        let listed = scenario.inside("cp1", &["kaas-agent", "certificate", "list"]);
        // The endpoint's own may have been renewed meanwhile.
        assert!(listed.matches(" ended ").count() >= 17, "{listed}");

        scenario.cut("cp1");
        scenario.power_on(&["cp1"]);
        scenario.soon_says("cp1", "kaas: ready");
        assert_eq!(scenario.cluster_identity(), identity);
        let listed = scenario.inside("cp1", &["kaas-agent", "certificate", "list"]);
        assert!(!listed.contains(" ended "), "{listed}");
        endpoint::issue(&scenario, "cp1", "monitoring");
        let status = endpoint::ask(&scenario, "cp1", "cp1", "/v1/status", true);
        assert!(status.contains("\"phase\": \"done\""), "{status}");
    }
}
