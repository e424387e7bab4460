//! The journal of an upgrade: [`Entry`] of `fleet` in the status of an Operation. The plan of the first entry is only in the
//! Operation's spec, which cannot change.

use fleet::upgrade::{Entry, Event, Plan};
use serde_json::{Map, Value};

use super::text::Mismatch;
use crate::objects::JournalEntry;

/// The member of the first entry that is in the spec.
const PLAN: &str = "plan";
/// The event of a waiting step.
const PAUSED: &str = "paused";

/// An entry for an Operation, without its plan.
pub fn journal_entry(entry: &Entry) -> Result<JournalEntry, Mismatch> {
    let Entry { at, lease: hold, event } = entry;
    let odd = |why: String| Mismatch::new("an event", format!("{event:?}"), why);
    let Value::Object(mut more) = serde_json::to_value(event).map_err(|error| odd(error.to_string()))? else {
        return Err(odd("which is no object".to_owned()));
    };
    let Some(Value::String(event)) = more.remove("event") else { return Err(odd("which has no name".to_owned())) };
    more.remove(PLAN);
    Ok(JournalEntry { at: *at, lease: *hold, event, more: more.into_iter().collect() })
}

/// The plan of a journal's first entry, for the spec. `None` for other entries.
pub fn plan_of(entry: &Entry) -> Result<Option<Value>, Mismatch> {
    let Event::Planned { plan } = &entry.event else { return Ok(None) };
    let plan: &Plan = plan;
    serde_json::to_value(plan)
        .map(Some)
        .map_err(|error| Mismatch::new("a plan", plan.id.to_string(), error.to_string()))
}

/// An entry of an Operation whose spec has this plan.
///
/// # Errors
/// The entry is not understood: another version may have written it.
pub fn entry_of(entry: &JournalEntry, plan: Option<&Value>) -> Result<Entry, Mismatch> {
    let JournalEntry { at, lease: hold, event, more } = entry;
    let mut members: Map<String, Value> = more.clone().into_iter().collect();
    members.insert("event".to_owned(), Value::from(event.as_str()));
    if let Some(plan) = plan.filter(|_| event == "planned") {
        members.insert(PLAN.to_owned(), plan.clone());
    }
    let read = serde_json::from_value::<Event>(Value::Object(members));
    let event = read.map_err(|error| Mismatch::new("an entry", event, format!("which is not understood: {error}")))?;
    Ok(Entry { at: *at, lease: *hold, event })
}

/// Adds an entry. The reason why a step waits replaces the former reason. So the journal grows with the steps and not with the
/// number of checks: an object has a maximum size.
pub fn add(entries: &mut Vec<JournalEntry>, entry: JournalEntry) {
    // Each reason contains how often the step was checked, including all earlier checks.
    let step = |entry: &JournalEntry| ["action", "node"].map(|member| entry.more.get(member).cloned());
    let waits = |entry: &JournalEntry| entry.event == PAUSED;
    match entries.last_mut() {
        Some(last) if waits(last) && waits(&entry) && step(last) == step(&entry) => *last = entry,
        _ => entries.push(entry),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fleet::hypervisor::DiskRef;
    use fleet::upgrade::{Action, Direction, IllNodes, Order, Outcome, Progress, Reason, Step};
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::records::fixture;

    fn plan() -> Plan {
        let node = |number: u8| {
            json!({
                "name": format!("shop-cp{number}"), "address": format!("192.0.2.{number}"), "old": Uuid::from_u128(1),
                "old_name": "old", "new_name": "new", "disk": {"uuid": Uuid::from_u128(2), "path": "[ds] a.vmdk"},
                "adapters": ["4000"], "identity": Uuid::from_u128(3), "member": "8e9e05c52164694d",
                "from": {"version": "0.1.0", "build": "0a".repeat(16)}, "swap": Uuid::from_u128(4), "leads": false,
                "holds_address": true,
            })
        };
        let mut plan = fixture::plan();
        plan["deployment"] = json!(Uuid::from_u128(6));
        plan["grounds"] = json!([{"subject": "etcd", "evidence": "three members"}]);
        plan["nodes"] = json!([node(1), node(2)]);
        plan["steps"] = json!([{"action": "verify"}, {"action": "import", "node": 0}]);
        serde_json::from_value(plan).unwrap()
    }

    /// One of each event. A new event does not compile until it is added here.
    fn events() -> Vec<Event> {
        let (step, reason) = (Step::of(Action::Detach, 1), Reason::new("upgrade.vm-state", "it is on"));
        let disk = Some(DiskRef { uuid: Uuid::from_u128(8), path: "[ds] b.vmdk".to_owned() });
        let events = vec![
            Event::Planned { plan: Box::new(plan()) },
            Event::Begun { step, disk, vm: Some(Uuid::from_u128(10)), copy: None, datastore: None, settings: None },
            Event::Done {
                step,
                note: "it is off".to_owned(),
                vm: Some(Uuid::from_u128(9)),
                replaced: true,
                copies: Vec::new(),
            },
            Event::Paused { step, reason: reason.clone(), looked: 7 },
            Event::DirectionChanged {
                direction: Direction::Back,
                only: Some(1),
                left_out: [0].into(),
                order: Order::First(IllNodes { together: vec![0], one_by_one: vec![1] }),
                reason,
            },
            Event::Ended { outcome: Outcome::RolledBack },
        ];
        let number = |event: &Event| match event {
            Event::Planned { .. } => 0,
            Event::Begun { .. } => 1,
            Event::Done { .. } => 2,
            Event::Paused { .. } => 3,
            Event::DirectionChanged { .. } => 4,
            Event::Ended { .. } => 5,
        };
        assert_eq!(events.iter().map(number).collect::<BTreeSet<_>>().len(), 6);
        events
    }

    fn entry(at: u64, event: Event) -> Entry {
        Entry { at, lease: 4, event }
    }

    #[test]
    fn entries_round_trip_with_the_spec_plan() {
        let first = entry(1, Event::Planned { plan: Box::new(plan()) });
        let in_spec = plan_of(&first).unwrap();
        for event in events() {
            let entry = entry(1_796_115_600, event);
            let kept = journal_entry(&entry).unwrap();
            assert!(!kept.more.contains_key("plan"), "it is in the spec");
            let kept: JournalEntry = serde_json::from_value(serde_json::to_value(kept).unwrap()).unwrap();
            assert_eq!(entry_of(&kept, in_spec.as_ref()).unwrap(), entry);
        }
        let of_later = JournalEntry { at: 1, lease: 1, event: "dreamt".to_owned(), more: [].into() };
        assert!(entry_of(&of_later, None).unwrap_err().to_string().starts_with("an entry is \"dreamt\""));
        assert!(entry_of(&journal_entry(&first).unwrap(), None).is_err(), "a plan that is not there is no plan");
    }

    /// Two budgets block a drain in turn over a weekend.
    #[test]
    fn reasons_of_a_waiting_step_share_an_entry() {
        let step = Step::of(Action::Prepare, 0);
        let paused = |step, code: &str, looked| Event::Paused { step, reason: Reason::new(code, "a budget"), looked };
        let begun = [
            Event::Planned { plan: Box::new(plan()) },
            Event::Begun { step, disk: None, vm: None, copy: None, datastore: None, settings: None },
        ];
        let mut whole: Vec<Entry> = begun.into_iter().map(|event| entry(1, event)).collect();
        let mut kept: Vec<JournalEntry> = whole.iter().map(|entry| journal_entry(entry).unwrap()).collect();
        for look in 0..3000 {
            let code = if look % 2 == 0 { "drain.blocked" } else { "hypervisor.transient" };
            let entry = entry(10 + look, paused(step, code, look));
            add(&mut kept, journal_entry(&entry).unwrap());
            whole.push(entry);
        }
        assert_eq!(kept.len(), 3);
        let read = |kept: &[JournalEntry]| -> Vec<Entry> {
            let plan = plan_of(&whole[0]).unwrap();
            kept.iter().map(|kept| entry_of(kept, plan.as_ref()).unwrap()).collect()
        };
        // The replaced reasons do not change the progress.
        assert_eq!(Progress::of(&plan(), &read(&kept)), Progress::of(&plan(), &whole));
        assert_eq!(Progress::of(&plan(), &read(&kept)).looked(step), Some((2999, 3009)));

        // A reason of another step is another entry, and so is an event.
        let other = Step::of(Action::Prepare, 1);
        for (event, length) in [
            (paused(other, "drain.blocked", 1), 4),
            (Event::Begun { step: other, disk: None, vm: None, copy: None, datastore: None, settings: None }, 5),
            (paused(other, "drain.blocked", 2), 6),
            (Event::Ended { outcome: Outcome::Abandoned }, 7),
        ] {
            add(&mut kept, journal_entry(&entry(9000, event)).unwrap());
            assert_eq!(kept.len(), length);
        }
    }
}
