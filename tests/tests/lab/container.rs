//! Forming and running on the container engine, at length.

use std::time::{Duration, Instant};

use contract::properties as keys;
use scenarios::by_hand::insert_cdrom;
use scenarios::scenario::{ALL, FORMING, MOMENT, Scenario, Setting, with};
use scenarios::workload::Workload;
use scenarios::{certificates, endpoint};

/// Twice the pace of the check that renews certificates.
const RENEWAL: Duration = Duration::from_secs(20 * 60);

pub mod long {
    use std::collections::BTreeSet;

    use super::*;

    /// The steps that a node has named on its console since it was powered on.
    fn steps(console: &str) -> BTreeSet<String> {
        let said = console.lines().filter_map(|line| line.trim_end().split_once("kaas: ").map(|(_, said)| said));
        // A step reads `starting etcd (14/28)`, with what it waits for after a colon.
        let named = said.filter_map(|said| said.split_once(" (").filter(|(_, rest)| rest.contains('/')));
        named.map(|(name, _)| name.to_owned()).collect()
    }

    /// Bad properties are corrected on the node itself, and it continues without another deployment. Afterwards the properties that
    /// may still change can be changed.
    pub fn bad_properties_are_corrected_on_the_node() {
        let scenario = Scenario::prepare(&Setting::one("mend"));
        let lab = scenario.lab();
        let good = lab.environment("cp1").unwrap();
        let bad = with(&with(&good, keys::DEPLOYMENT_SECRET, "password"), keys::TIMEOUT_FACTOR, "much");
        insert_cdrom(&scenario, "cp1", &bad);
        scenario.power_on(&["cp1"]);
        scenario.soon_says("cp1", "2 problems must be corrected");

        // One alone is not enough: the rest is said again, and nothing is saved.
        let said = scenario.inside("cp1", &["sh", "-c", "kaas-agent configure timeout-factor=2 || true"]);
        assert!(said.contains("Nothing was changed") && said.contains("deployment-secret.weak"), "{said}");
        let secret = &scenario.properties("cp1")[keys::DEPLOYMENT_SECRET];
        let both =
            format!("printf 'deployment-secret=%s\\ntimeout-factor=2\\n' '{secret}' | kaas-agent configure --from -");
        let said = scenario.inside("cp1", &["sh", "-c", &both]);
        assert!(said.starts_with("Saved."), "{said}");
        scenario.all_ready(FORMING);
        let kept = scenario.inside("cp1", &["ls", "/run/kaas"]);
        assert!(!kept.contains("overrides.json"), "{kept}");

        // Properties that may change on a formed node are changed, and others are refused.
        let said = scenario.inside("cp1", &["kaas-agent", "configure", "search-domains=lab.example.com"]);
        assert!(said.contains("was restarted"), "{said}");
        scenario.wait("the search domain to be used", MOMENT, || {
            Ok(lab.run_inside("cp1", &["resolvectl", "domain"], MOMENT)?.contains("lab.example.com"))
        });
        let said = scenario.inside("cp1", &["sh", "-c", "kaas-agent configure node-name=other || true"]);
        assert!(said.contains("property.fixed"), "{said}");
        scenario.soon_says("cp1", "kaas: ready");
    }

    /// A node loses its power when it reaches each step of forming. After the last cut it becomes Ready, with one etcd member.
    pub fn node_cut_at_each_step_forms_its_cluster() {
        let scenario = Scenario::prepare(&Setting::one("cuts"));
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

    /// Certificates that expire soon are renewed while the cluster works: the node yields the virtual IP first. Clients that
    /// write through it lose almost nothing.
    pub fn certificates_are_renewed_in_a_running_cluster() {
        let scenario = Scenario::formed("renew");
        let node = scenario.address_holder();
        certificates::end_in_a_month(&scenario, node);
        let listed = || scenario.inside(node, &["kaas-agent", "certificate", "list"]);
        assert!(listed().contains("ends in 29 days"), "{}", listed());

        let api_server = || scenario.inside(node, &["sh", "-c", "pgrep --oldest --full '^kube-apiserver' || true"]);
        let before = api_server();
        // The check looks every ten minutes.
        let (mut tries, mut failed, mut gap, mut well) = (0_u32, 0_u32, Duration::ZERO, Instant::now());
        scenario.wait("the certificates to be renewed and the control plane to run with them", RENEWAL, || {
            tries += 1;
            match scenario.lab().kubectl(&["annotate", "node", node, "--overwrite", &format!("scenario={tries}")]) {
                Ok(_) => (gap, well) = (gap.max(well.elapsed()), Instant::now()),
                Err(_) => failed += 1,
            }
            let journal = scenario.inside(node, &["journalctl", "--unit=kaas-agent", "--output=cat"]);
            let (_, after) = journal.split_once("starts again with renewed credentials").unwrap_or_default();
            let now = api_server();
            Ok(!after.is_empty() && !now.is_empty() && now != before && scenario.lab().ready_nodes()?.len() == 3)
        });
        println!("renew: {tries} writes, {failed} failed, at most {:.1} s between two", gap.as_secs_f64());
        // The kubelet sees to its rotating one itself.
        let old = |line: &&str| line.ends_with("ends in 29 days") && !line.starts_with("kubelet-client");
        assert_eq!(listed().lines().find(old), None);
        assert_ne!(scenario.address_holder(), node, "the virtual IP was not given up");
        scenario.ready(&ALL, MOMENT);
    }

    /// A node that was off until all its certificates expired is the same node again, without an operator.
    pub fn node_with_expired_certificates_renews_them_at_boot() {
        let scenario = Scenario::ready_one(&Setting::one("expired"));
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
