//! Records the traffic at a node's adapters: a part of the scenarios with secrets.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use contract::ports;
use scenarios::endpoint;
use scenarios::scenario::{ALL, MOMENT, Scenario};

/// The recorded traffic of all adapters of a node, with loopback.
const HEARD: &str = "/run/scenario-wire";

/// Lets each node record its traffic during an action. No record may contain the word, as it is or in the JSON of a Secret. Words in
/// clear text are sent to the API's port before and after: they show that all nodes record all the time.
pub fn traffic_does_not_contain(scenario: &Scenario, secret: &str, act: impl FnOnce()) {
    let listen = format!("exec tcpdump -i any -U -w - >{HEARD} 2>/dev/null");
    for node in ALL {
        scenario.inside(node, &["systemd-run", "--quiet", "--collect", "--unit=scenario-wire", "sh", "-c", &listen]);
    }
    let hears = |node: &str, word: &str| {
        let search = format!("grep --text --fixed-strings --count -e '{word}' {HEARD} || true");
        scenario.inside(node, &["sh", "-c", &search]).trim() != "0"
    };
    let all_hear = |word: &str| {
        for (node, from) in [("cp1", "cp2"), ("cp2", "cp3"), ("cp3", "cp1")] {
            let to = format!("/dev/tcp/{}/{}", endpoint::address(scenario, node), ports::API);
            let say = format!(
                "exec 3<>{to}; printf 'GET /{word} HTTP/1.0\\r\\n\\r\\n' >&3; timeout 20 cat <&3 >/dev/null || true"
            );
            scenario.wait(&format!("{node} to hear a word in clear"), MOMENT, || {
                scenario.lab().run_inside(from, &["bash", "-c", &say], MOMENT)?;
                Ok(hears(node, word))
            });
        }
    };
    all_hear("begins-4c1f9e7d2b6a8053");
    act();
    all_hear("ends-4c1f9e7d2b6a8053");
    for node in ALL {
        for word in [secret, &BASE64_STANDARD.encode(secret)] {
            assert!(!hears(node, word), "a Secret is on the wire at {node}");
        }
        scenario.inside(node, &["sh", "-c", &format!("systemctl stop scenario-wire.service; rm {HEARD}")]);
    }
}
