//! The next step of a change of settings. All control-plane nodes are asked whether they can take the settings. Then one node after the
//! other takes them. Pure: it is decided from the answers of a dry run, which is repeated before each step.
//!
//! | Answers | Next step |
//! |---|---|
//! | a node does not answer, or has not applied its settings | wait |
//! | the image of a node is older than the route or the property | nothing until the image is upgraded |
//! | a node refuses, and no node was changed | nothing until the spec changes |
//! | a node refuses, and others were changed | they get the values of the node that refuses, one by one |
//! | a node differs, and all others are Ready | it gets the settings |
//! | no node differs | done |

use contract::codes;
use contract::configure::{ConfigureRefusal, Configured, Properties};
use contract::properties::{self as keys, AddressRange, Value};
use fleet::nodes::ConfigureAnswer;

/// A node's answer to the dry run.
#[derive(Debug)]
pub struct AskedNode {
    pub name: String,
    pub is_ready: bool,
    /// An error has the reason in words.
    pub answer: Result<ConfigureAnswer, String>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum SettingsStep {
    /// All nodes have the settings and work with them.
    Done,
    /// Ask again later. The text has the reason.
    Wait(String),
    /// The image of a node is too old. The text names the node.
    ImageTooOld(String),
    /// A node refuses, and no node has the settings. The text has the node's words.
    Refused(String),
    /// The node with this number gets these properties, or the wanted ones.
    Change(usize, Option<Properties>),
}

/// The next step. `has_begun` is whether an Operation may have changed nodes.
pub fn next_setting(nodes: &[AskedNode], has_begun: bool) -> SettingsStep {
    use SettingsStep::{Change, Done, ImageTooOld, Refused, Wait};
    let (mut asked, mut refusal) = (Vec::new(), None);
    for (index, node) in nodes.iter().enumerate() {
        match &node.answer {
            Err(words) => return Wait(format!("{}: {words}", node.name)),
            Ok(ConfigureAnswer::UnknownRoute) => return ImageTooOld(node.name.clone()),
            Ok(ConfigureAnswer::Refused(refused)) => refusal = refusal.or(Some((node, refused))),
            Ok(ConfigureAnswer::Configured(configured)) => asked.push((index, node, configured)),
        }
    }
    if let Some((node, refused)) = refusal {
        if let Some(index) = taken_back(&asked, refused).filter(|_| has_begun) {
            return Change(index, Some(Properties { properties: refused.properties.clone() }));
        }
        return match refused.code == codes::PROPERTY_UNKNOWN.code {
            true => ImageTooOld(node.name.clone()),
            false => Refused(format!("{}: {}", node.name, refused.reason)),
        };
    }
    let differs = |(_, _, configured): &&(usize, &AskedNode, &Configured)| !configured.changed.is_empty();
    if let Some((_, node, _)) = asked.iter().find(|it| !differs(it) && !it.2.applied) {
        return Wait(format!("{} applies its settings", node.name));
    }
    // A node that its present settings have made unhealthy comes first. Any other one would be missing too.
    let next = asked.iter().filter(differs).min_by_key(|(_, node, _)| node.is_ready);
    let Some((index, next, _)) = next else { return Done };
    match nodes.iter().find(|node| !node.is_ready && node.name != next.name) {
        Some(other) => Wait(format!("{} is not Ready", other.name)),
        None => Change(*index, None),
    }
}

/// The wanted addresses for Services with those that nodes have in addition. `None` if nodes have no others. An operator may have
/// added them on the nodes, and Services may use them.
pub fn with_present_vips(wanted: &str, nodes: &[AskedNode]) -> Option<String> {
    let ranges = |text: &str| match keys::find(keys::SERVICE_VIPS)?.parse(text) {
        Ok(Value::AddressRanges(ranges)) => Some(ranges),
        _ => None,
    };
    let wanted = ranges(wanted).unwrap_or_default();
    let present = nodes.iter().filter_map(|node| match node.answer.as_ref().ok()? {
        ConfigureAnswer::Configured(configured) => configured.properties.get(keys::SERVICE_VIPS),
        ConfigureAnswer::Refused(refused) => refused.properties.get(keys::SERVICE_VIPS),
        ConfigureAnswer::UnknownRoute => None,
    });
    let all = merged(wanted.iter().copied().chain(present.filter_map(|text| ranges(text)).flatten()).collect());
    let text = || all.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    (all != merged(wanted)).then(text)
}

/// The same addresses in ascending ranges that do not touch.
fn merged(mut ranges: Vec<AddressRange>) -> Vec<AddressRange> {
    ranges.sort_by_key(|range| range.first);
    let mut merged: Vec<AddressRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if u32::from(range.first) <= u32::from(last.last).saturating_add(1) => {
                last.last = last.last.max(range.last);
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// The first node that has other values than the node that refuses.
fn taken_back(asked: &[(usize, &AskedNode, &Configured)], refused: &ConfigureRefusal) -> Option<usize> {
    asked.iter().find(|(_, _, configured)| configured.properties != refused.properties).map(|(index, ..)| *index)
}

#[cfg(test)]
mod tests {
    use super::SettingsStep::{Change, Done, ImageTooOld, Refused, Wait};
    use super::*;

    fn node(name: &str, answer: ConfigureAnswer) -> AskedNode {
        AskedNode { name: name.to_owned(), is_ready: true, answer: Ok(answer) }
    }

    fn has(value: &str) -> Properties {
        Properties { properties: [("ntp-servers".to_owned(), value.to_owned())].into() }
    }

    /// A node with this value that is asked whether it can take `new`.
    fn with(name: &str, value: &str) -> AskedNode {
        let changed = if value == "new" { Vec::new() } else { vec!["ntp-servers".to_owned()] };
        let (properties, findings) = (has(value).properties, Default::default());
        node(name, ConfigureAnswer::Configured(Configured { properties, changed, applied: true, findings }))
    }

    fn refuses(name: &str, code: &str) -> AskedNode {
        let (code, reason) = (code.to_owned(), "ntp-servers: it is too long".to_owned());
        let properties = has("old").properties;
        node(
            name,
            ConfigureAnswer::Refused(ConfigureRefusal { code, reason, properties, findings: Default::default() }),
        )
    }

    // Finding 14 of controller.md: settings reach all nodes, one after the other.
    #[test]
    fn nodes_change_one_after_the_other() {
        let nodes = |values: [&str; 3]| [with("cp1", values[0]), with("cp2", values[1]), with("cp3", values[2])];
        for (values, next) in [
            (["old", "old", "old"], Change(0, None)),
            (["new", "old", "old"], Change(1, None)),
            (["new", "new", "old"], Change(2, None)),
            (["new", "new", "new"], Done),
        ] {
            assert_eq!(next_setting(&nodes(values), true), next);
        }
        let mut waiting = nodes(["new", "old", "old"]);
        let Ok(ConfigureAnswer::Configured(first)) = &mut waiting[0].answer else { unreachable!() };
        first.applied = false;
        assert_eq!(next_setting(&waiting, true), Wait("cp1 applies its settings".to_owned()));
    }

    #[test]
    fn unhealthy_node_comes_first() {
        let mut nodes = [with("cp1", "old"), with("cp2", "bad"), with("cp3", "old")];
        nodes[1].is_ready = false;
        assert_eq!(next_setting(&nodes, true), Change(1, None), "its settings may be the cause");
        let mut nodes = [with("cp1", "new"), with("cp2", "old"), with("cp3", "old")];
        nodes[0].is_ready = false;
        assert_eq!(next_setting(&nodes, true), Wait("cp1 is not Ready".to_owned()));
        nodes[0].answer = Err("it does not answer".to_owned());
        assert_eq!(next_setting(&nodes, true), Wait("cp1: it does not answer".to_owned()));
    }

    #[test]
    fn refusal_takes_changed_nodes_back() {
        let refused = Refused("cp3: ntp-servers: it is too long".to_owned());
        let other = || refuses("cp3", "property.malformed");
        assert_eq!(next_setting(&[with("cp1", "old"), with("cp2", "old"), other()], false), refused);
        let back = |index| Change(index, Some(has("old")));
        assert_eq!(next_setting(&[with("cp1", "new"), with("cp2", "new"), other()], true), back(0));
        assert_eq!(next_setting(&[with("cp1", "old"), with("cp2", "new"), other()], true), back(1));
        assert_eq!(next_setting(&[with("cp1", "old"), with("cp2", "old"), other()], true), refused);
        // Settings that differ by other means stay.
        assert_eq!(next_setting(&[with("cp1", "new"), with("cp2", "old"), other()], false), refused);
    }

    #[test]
    fn present_addresses_for_services_stay() {
        let with_vips = |text: &str| {
            let mut node = with("cp1", "old");
            let Ok(ConfigureAnswer::Configured(now)) = &mut node.answer else { unreachable!() };
            now.properties.insert(keys::SERVICE_VIPS.to_owned(), text.to_owned());
            node
        };
        let all = |wanted: &str, present: &str| with_present_vips(wanted, &[with("cp2", "old"), with_vips(present)]);
        assert_eq!(all("10.0.0.5-10.0.0.9", "10.0.0.5-10.0.0.6,10.0.0.7-10.0.0.7"), None);
        assert_eq!(all("10.0.0.5-10.0.0.9", ""), None);
        assert_eq!(all("10.0.0.5-10.0.0.9", "10.0.0.8-10.0.0.12").as_deref(), Some("10.0.0.5-10.0.0.12"));
        assert_eq!(all("", "10.0.0.8-10.0.0.8").as_deref(), Some("10.0.0.8-10.0.0.8"));
        // A tenant's node may answer anything.
        assert_eq!(all("10.0.0.5-10.0.0.9", "0.0.0.0-255.255.255.255,x"), None);
    }

    #[test]
    fn older_image_needs_an_upgrade() {
        let older = || node("cp2", ConfigureAnswer::UnknownRoute);
        assert_eq!(next_setting(&[with("cp1", "old"), older()], false), ImageTooOld("cp2".to_owned()));
        let unknown = refuses("cp2", "property.unknown");
        assert_eq!(next_setting(&[with("cp1", "old"), unknown], false), ImageTooOld("cp2".to_owned()));
    }
}
