//! How workers join a tenant, and again when they were away for too long: on the container engine.

pub mod long {
    use std::net::Ipv4Addr;

    use contract::properties as keys;
    use scenarios::by_hand::insert_cdrom;
    use scenarios::certificates;
    use scenarios::joining::ManualWorker;
    use scenarios::other_image::OtherImage;
    use scenarios::scenario::{FORMING, MOMENT, Scenario, Setting, with};
    use scenarios::tenant::Tenant;
    use scenarios::terminal::{Terminal, key};

    /// The other values of a form, the code of the refusal, and words of it.
    type Form<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);

    /// A hash that is no cluster's.
    const OTHER_HASH: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";

    /// Each thing that keeps a worker out has its code, and is said on its console. While the API is away a worker says so,
    /// and joins once it is back.
    pub fn refused_worker_shows_code_and_waits_for_api() {
        let older = OtherImage::of_tenants("0.2.9", "1.20.0");
        // A tenant takes its host's network, and nothing else of it.
        let host = Scenario::prepare(&Setting::one("host-j"));
        let scenario = host.tenant("tj", "1", "1");
        let (tenant, lab) = (Tenant::of(&scenario), scenario.lab());
        let (control, member) = (lab.plan().nodes[0].name.clone(), tenant.workers()[0].clone());
        let addresses = lab.worker_addresses().unwrap();
        let node = format!("{}-w2", lab.name());
        let token = tenant.token(&node);
        let expired = tenant.expired_token(&node).joined().expose().to_owned();
        let wrong_secret = format!("{}.0123456789abcdef", token.id);

        let by_hand = ManualWorker::import(&scenario, "by-hand", (&node, addresses.last), &token, None);
        scenario.reached("a VM is made by hand");
        let [as_the_member, as_the_control_node] =
            [&member, &control].map(|name| format!("the cluster has another node {name}"));
        let forms: [Form<'_>; 6] = [
            (&[(keys::CLUSTER_CA_HASH, OTHER_HASH)], "join.wrong-ca", "the cluster at the address shows sha256:"),
            (&[(keys::JOIN_TOKEN, &expired)], "join.token-refused", "it has expired, was deleted, or was mistyped"),
            (&[(keys::JOIN_TOKEN, &wrong_secret)], "join.token-refused", "its secret half is not the cluster's"),
            (&[(keys::CLUSTER_NAME, "another")], "join.other-cluster", "not another"),
            (&[(keys::NODE_NAME, &member)], "join.name-in-use", &as_the_member),
            (&[(keys::NODE_NAME, &control)], "join.name-in-use", &as_the_control_node),
        ];
        for (values, code, words) in forms {
            // Off before the first one, on ever after.
            by_hand.is_given(values);
            scenario.power_on(&[&by_hand.vm]);
            by_hand.is_refused(code, words);
        }

        let (other, address) = (format!("{}-w3", lab.name()), Ipv4Addr::from(u32::from(addresses.last) - 1));
        let skewed =
            ManualWorker::import(&scenario, "skewed", (&other, address), &tenant.token(&other), Some(older.source()));
        scenario.power_on(&[&skewed.vm]);
        skewed.is_refused("join.version-skew", "this image carries 1.20");
        scenario.cut(&skewed.vm);

        // The owner of the address is on, and then off. The network reports the first case, the cluster the second one.
        scenario.cut(&by_hand.vm);
        by_hand.is_given(&[(keys::ADDRESS, &format!("{}/{}", addresses.first, addresses.prefix))]);
        scenario.power_on(&[&by_hand.vm]);
        by_hand.is_refused("address.in-use", "uses this address");
        scenario.cut(&member);
        by_hand.is_refused("join.address-in-use", &format!("the cluster's node {member}"));
        scenario.cut(&by_hand.vm);

        // A member stays where it is, whatever its form says.
        insert_cdrom(&scenario, &member, &with(&lab.environment(&member).unwrap(), keys::CLUSTER_CA_HASH, OTHER_HASH));
        scenario.power_on(&[&member]);
        scenario.says(&member, "kaas: warning join.other-cluster: ", MOMENT);
        scenario.says(&member, "kaas: ready", FORMING);

        by_hand.is_given(&[(keys::JOIN_TOKEN, tenant.token(&node).joined().expose())]);
        scenario.cut(&control);
        scenario.power_on(&[&by_hand.vm]);
        scenario.says(&by_hand.vm, &format!("waiting for the Kubernetes API at {}:6443", lab.plan().api), MOMENT);
        scenario.power_on(&[&control]);
        scenario.says(&by_hand.vm, "kaas: ready", FORMING);
        let all = [control.as_str(), member.as_str(), node.as_str()];
        scenario.ready(&all, FORMING);
    }

    /// A worker was off for so long that the cluster knows it no more.
    fn is_away_for_too_long(scenario: &Scenario, worker: &str, control: &str) {
        certificates::expire_worker(scenario, worker, control);
        scenario.cut(worker);
        scenario.power_on(&[worker]);
        scenario.says(worker, "kaas: error join.certificate-expired: ", MOMENT);
        scenario.ready(&[control], MOMENT);
    }

    /// It is given a new token in each way that there is, and each time it is the same node of its cluster again.
    pub fn worker_with_expired_certificate_joins_with_another_token() {
        let host = Scenario::prepare(&Setting::one("host-x"));
        let scenario = host.tenant("tx", "1", "1");
        let (tenant, lab) = (Tenant::of(&scenario), scenario.lab());
        let (control, worker) = (lab.plan().nodes[0].name.clone(), tenant.workers()[0].clone());
        let identity = || scenario.kubectl(&["get", "node", &worker, "--output=jsonpath={.metadata.uid}"]);
        let before = identity();
        let is_a_member_again = |how: &str| {
            scenario.says(&worker, "kaas: ready", FORMING);
            scenario.ready(&[&control, &worker], FORMING);
            assert_eq!(identity(), before, "it is another node");
            let listed = scenario.inside(&worker, &["kaas-agent", "certificate", "list"]);
            assert!(!listed.contains(" ended "), "{listed}");
            scenario.reached(how);
        };

        is_away_for_too_long(&scenario, &worker, &control);
        let token = tenant.token(&worker);
        let form = lab.environment(&worker).unwrap();
        insert_cdrom(&scenario, &worker, &with(&form, keys::JOIN_TOKEN, token.joined().expose()));
        is_a_member_again("it has joined again by its form");

        is_away_for_too_long(&scenario, &worker, &control);
        let token = tenant.token(&worker);
        let mut terminal = Terminal::inside(&scenario, &worker);
        terminal.shows("[join.certificate-expired]", MOMENT);
        terminal.print("status of a worker whose certificate has expired");
        terminal.opens_the_form("the worker's certificate ended", MOMENT);
        // The cursor is on the token.
        terminal.press(&[token.joined().expose(), key::SAVE]);
        terminal.shows_one_of(&["Saved.", "The node has changed"], MOMENT);
        drop(terminal);
        is_a_member_again("it has joined again by its console");

        is_away_for_too_long(&scenario, &worker, &control);
        scenario.wait("the worker's own code and what mends it", FORMING, || {
            let status = tenant.run(&["status"]);
            let wait = status["waits"].as_array().and_then(|waits| waits.first()).cloned().unwrap_or_default();
            let words = wait["reason"].as_str().unwrap_or_default();
            Ok(wait["code"] == "join.certificate-expired" && words.ends_with("A new token fixes it"))
        });
        let tokens = tenant.tokens();
        let status = tenant.run(&["rejoin-worker", &worker]);
        assert_eq!((&status["arrived"], &status["available"]), (&"done".into(), &1.into()), "{status}");
        assert_eq!(tenant.tokens(), tokens, "its token is left");
        is_a_member_again("it has joined again by its deployer");
    }
}
