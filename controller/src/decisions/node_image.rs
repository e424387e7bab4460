//! The status of a NodeImage: its phase, and whether VMs can be created from it.

use contract::minor::Minor;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::objects::{Lifecycle, LifecyclePhase, NodeImageReason, NodeImageStatus, Template};

/// The phase of an image at a time: the one that began last. Before the first phase, the one that precedes it: an image that will
/// be supported is a preview. Without phases the image is supported.
pub fn phase(lifecycle: &[Lifecycle], now: Timestamp) -> LifecyclePhase {
    let begun = lifecycle.iter().filter(|phase| phase.from.0 <= now).max_by_key(|phase| phase.phase);
    match begun {
        Some(begun) => begun.phase,
        None if lifecycle.is_empty() => LifecyclePhase::Supported,
        None => match lifecycle.iter().map(|phase| phase.phase).min() {
            Some(LifecyclePhase::Deprecated | LifecyclePhase::Expired) => LifecyclePhase::Supported,
            _ => LifecyclePhase::Preview,
        },
    }
}

/// The time until the next phase begins. `None` if no phase follows.
pub fn next_phase(lifecycle: &[Lifecycle], now: Timestamp) -> Option<SignedDuration> {
    let coming = lifecycle.iter().map(|phase| phase.from.0.duration_since(now)).filter(SignedDuration::is_positive);
    coming.min()
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateInventory {
    pub templates: Vec<Template>,
    /// Templates that differ from their import: where, and in what.
    pub altered: Vec<String>,
    /// Providers that could not be asked, with the reason.
    pub unasked: Vec<String>,
    /// Datastores and Providers without a template, as messages.
    pub missing: Vec<String>,
    pub asked: bool,
}

/// The reasons of conditions, each with its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageConditions {
    /// Whether VMs can be created from the image.
    pub ready: (NodeImageReason, String),
    /// Whether this controller can run the image.
    pub compatible: (NodeImageReason, String),
}

/// The conditions of an image in a phase, from its templates and their properties.
pub fn image_conditions(phase: LifecyclePhase, found: &TemplateInventory, said: &NodeImageStatus) -> ImageConditions {
    ImageConditions { ready: ready(phase, found), compatible: compatible(said) }
}

fn ready(phase: LifecyclePhase, found: &TemplateInventory) -> (NodeImageReason, String) {
    let also = |words: String| {
        let more = [&found.missing[..], &found.unasked[..]].concat();
        if more.is_empty() { words } else { format!("{words}; {}", more.join("; ")) }
    };
    let is_whole = found.templates.iter().any(|template| template.stamped);
    if phase == LifecyclePhase::Expired {
        (NodeImageReason::Expired, "its last phase has begun".to_owned())
    } else if !found.altered.is_empty() {
        (NodeImageReason::NotStamped, also(found.altered.join("; ")))
    } else if is_whole {
        (NodeImageReason::TemplatesReady, also(format!("{} templates", found.templates.len())))
    } else if found.asked {
        (NodeImageReason::NoTemplate, also("no Provider that was asked has a template of it".to_owned()))
    } else {
        (NodeImageReason::NotAsked, also("no Provider was asked".to_owned()))
    }
}

const APPLIANCE: &str = "kaas-tenant";

fn compatible(said: &NodeImageStatus) -> (NodeImageReason, String) {
    let NodeImageStatus { appliance, kubernetes, .. } = said;
    let Some(appliance) = appliance else {
        return (NodeImageReason::NotRead, "nothing is known yet of what it is".to_owned());
    };
    if appliance != APPLIANCE {
        return (NodeImageReason::OtherAppliance, format!("it is a {appliance}, and tenants run {APPLIANCE}"));
    }
    let odd: Vec<&str> =
        kubernetes.iter().filter(|minor| minor.parse::<Minor>().is_err()).map(String::as_str).collect();
    if !odd.is_empty() {
        return (NodeImageReason::TooNew, format!("it carries Kubernetes {}, which is not understood", odd.join(", ")));
    }
    if kubernetes.is_empty() {
        return (NodeImageReason::NotRead, "it is not known which minor versions of Kubernetes it carries".to_owned());
    }
    (NodeImageReason::Understood, format!("it carries Kubernetes {}", kubernetes.join(", ")))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn life(phases: &[(LifecyclePhase, i64)]) -> Vec<Lifecycle> {
        phases.iter().map(|(phase, from)| Lifecycle { phase: *phase, from: Time(at(*from)) }).collect()
    }

    #[test]
    fn phases_follow_the_clock() {
        use LifecyclePhase::{Deprecated, Expired, Preview, Supported};
        let whole = life(&[(Supported, 10), (Deprecated, 20), (Expired, 30)]);
        let seen: Vec<_> = [9, 10, 19, 20, 30, 99].iter().map(|second| phase(&whole, at(*second))).collect();
        assert_eq!(seen, [Preview, Supported, Supported, Deprecated, Expired, Expired]);
        let waits: Vec<_> = [9, 10, 29, 30].iter().map(|second| next_phase(&whole, at(*second))).collect();
        assert_eq!(waits, [Some(1), Some(10), Some(1), None].map(|wait| wait.map(SignedDuration::from_secs)));
        assert_eq!((phase(&[], at(0)), next_phase(&[], at(0))), (Supported, None));
        // An image with only an end is supported until then.
        for ending in [&[(Deprecated, 20)][..], &[(Expired, 20)]] {
            assert_eq!(phase(&life(ending), at(19)), Supported);
        }
        assert_eq!(phase(&life(&[(Preview, 5), (Supported, 10)]), at(4)), Preview);
        // The order in the list does not matter.
        let mut reversed = whole.clone();
        reversed.reverse();
        assert_eq!(phase(&reversed, at(25)), Deprecated);
    }

    fn template(stamped: bool) -> Template {
        let text = str::to_owned;
        Template { provider: text("dc1"), datastore: text("vsan"), uuid: text("u"), stamped }
    }

    #[test]
    fn image_with_a_stamped_template_is_ready() {
        let ready =
            |phase, found: &TemplateInventory| image_conditions(phase, found, &NodeImageStatus::default()).ready;
        let supported = LifecyclePhase::Supported;
        let none = TemplateInventory {
            missing: vec!["dc1 has none on vsan".to_owned()],
            asked: true,
            ..TemplateInventory::default()
        };
        let whole = TemplateInventory { templates: vec![template(true)], ..none.clone() };
        let altered =
            TemplateInventory { altered: vec!["x in dc1: its disk is another one".to_owned()], ..whole.clone() };
        let unasked = TemplateInventory { unasked: vec!["dc2: no answer".to_owned()], ..TemplateInventory::default() };
        for (found, reason, words) in [
            (
                &none,
                NodeImageReason::NoTemplate,
                "no Provider that was asked has a template of it; dc1 has none on vsan",
            ),
            (&whole, NodeImageReason::TemplatesReady, "1 templates; dc1 has none on vsan"),
            (&altered, NodeImageReason::NotStamped, "x in dc1: its disk is another one; dc1 has none on vsan"),
            (&unasked, NodeImageReason::NotAsked, "no Provider was asked; dc2: no answer"),
            (&TemplateInventory::default(), NodeImageReason::NotAsked, "no Provider was asked"),
        ] {
            assert_eq!(ready(supported, found), (reason, words.to_owned()));
        }
        let unstamped =
            TemplateInventory { templates: vec![template(false)], asked: true, ..TemplateInventory::default() };
        assert_eq!(ready(supported, &unstamped).0, NodeImageReason::NoTemplate);
        assert_eq!(ready(LifecyclePhase::Expired, &whole).0, NodeImageReason::Expired);
    }

    #[test]
    fn unknown_appliance_or_format_is_incompatible() {
        let of = |appliance: Option<&str>, kubernetes: &[&str]| {
            let said = NodeImageStatus {
                appliance: appliance.map(str::to_owned),
                kubernetes: kubernetes.iter().map(|minor| (*minor).to_owned()).collect(),
                ..NodeImageStatus::default()
            };
            image_conditions(LifecyclePhase::Supported, &TemplateInventory::default(), &said).compatible.0
        };
        assert_eq!(of(None, &["1.36"]), NodeImageReason::NotRead);
        assert_eq!(of(Some("kaas-tenant"), &[]), NodeImageReason::NotRead);
        assert_eq!(of(Some("kaas-control-plane"), &["1.36"]), NodeImageReason::OtherAppliance);
        assert_eq!(of(Some("kaas-tenant"), &["1.36", "one.37"]), NodeImageReason::TooNew);
        assert_eq!(of(Some("kaas-tenant"), &["1.35", "1.36"]), NodeImageReason::Understood);
    }
}
