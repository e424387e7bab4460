//! One call is many requests: a caller that is overtaken in the middle of one makes no further request. Also: a
//! template is imported where it was wanted, and unchanged.

use super::command::{begin, end, give, give_with};
use super::fake::fault::{At, Fault};
use super::fake::{Ill, World, stamp};
use crate::engine::{GuardedHypervisor, Scope};
use crate::hypervisor::{CloneRequest, CloneSettings, ErrorKind, ImageTemplate, Placement, Result, Vm};
use crate::lease::{Lease, Lost, TakeOver};
use crate::upgrade::{Mode, Outcome, Request};

fn world() -> World {
    World::of(1, Mode::Rolling, Ill::Well)
}

async fn staged(
    guarded: &GuardedHypervisor<'_>,
    world: &World,
    like: &Vm,
    placement: &Placement,
) -> Result<ImageTemplate> {
    let target = &world.target;
    guarded.import_template(&target.ova, &target.digest, Some(like), placement, &guarded.call()).await
}

/// Injects a fault at the n-th time that a call asks for its permit. Returns the kind of its error, if it has one, and
/// the requests that it made.
async fn asked(call: &str, number: usize, fault: Fault) -> (Option<ErrorKind>, Vec<&'static str>) {
    let world = world();
    let hold = Lease::acquire(&world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    let guarded = GuardedHypervisor::new(&world, &hold, None);
    let placement = Placement::default();
    let like = world.old_vm("cp1");
    let image = match call {
        "import" => Some(staged(&guarded, &world, &like, &placement).await.unwrap()),
        _ => None,
    };
    // A first look counts the calls; each permit is one answer of the store.
    let mut at = None;
    for _ in 0..2 {
        world.fault(at);
        let done = match &image {
            Some(image) => {
                let swap = Some(uuid::Uuid::from_u128(1));
                let stamp = stamp("cp1", swap).unwrap();
                let name = if at.is_some() { "second" } else { "first" };
                let replacement = CloneRequest {
                    name,
                    uuid: uuid::Uuid::new_v4(),
                    image,
                    settings: CloneSettings::Replaces { vm: &like, size: None },
                    stamp,
                    placement: &placement,
                };
                let call = guarded.open(Scope::Clone(&replacement)).unwrap();
                guarded.clone_vm(&replacement, &call).await.map(drop)
            }
            None => {
                world.lock().templates.clear();
                staged(&guarded, &world, &like, &placement).await.map(drop)
            }
        };
        match at {
            None => {
                done.unwrap();
                let permits = world.calls().into_iter().enumerate().filter(|(_, call)| call.name == "store.exists");
                let index = permits.map(|(index, _)| index).nth(number - 1).expect("a permit");
                at = Some(At { call: index + 1, fault, lasting: false });
            }
            Some(_) => {
                let made = world.calls().into_iter().map(|call| call.name);
                let made = made.filter(|name| !name.starts_with("store") && *name != "staged").collect();
                return (done.err().map(|error| error.kind), made);
            }
        }
    }
    unreachable!("both rounds return or go on")
}

#[tokio::test(start_paused = true)]
async fn overtaken_call_makes_no_further_request() {
    assert_eq!(asked("import", 1, Fault::Overtaken).await, (Some(ErrorKind::Fenced), vec![]));
    assert_eq!(asked("import", 2, Fault::Overtaken).await, (Some(ErrorKind::Fenced), vec!["import"]));
    assert_eq!(asked("stage", 1, Fault::Overtaken).await, (Some(ErrorKind::Fenced), vec![]));
    assert_eq!(asked("stage", 2, Fault::Overtaken).await, (Some(ErrorKind::Fenced), vec!["stage.make"]));
}

#[tokio::test(start_paused = true)]
async fn unavailable_permit_begins_no_call() {
    let silent = Fault::Error(ErrorKind::Transient);
    assert_eq!(asked("import", 1, silent).await, (Some(ErrorKind::Transient), vec![]));
    assert_eq!(asked("import", 2, silent).await, (None, vec!["import", "import.finish"]));
    assert_eq!(asked("stage", 2, silent).await, (None, vec!["stage.make", "stage.finish"]));
}

#[tokio::test(start_paused = true)]
async fn import_cut_by_takeover_is_redone() {
    let twin = world();
    begin(&twin).await;
    give(&twin, Request::Resume).await.arrived();
    let finish = twin.calls().iter().position(|call| call.name == "import.finish").unwrap();
    let world = world();
    begin(&world).await;
    let at = At { call: finish, fault: Fault::Overtaken, lasting: false };
    let given = give_with(&world, Request::Resume, None, Some(at)).await;
    let super::command::Given::Failed(error) = given else { panic!("{given:?}") };
    assert!(error.is::<Lost>(), "{error:#}");
    let half = |world: &World| world.lock().machines.iter().filter(|machine| !machine.whole).count();
    assert_eq!((half(&world), world.called("import.finish")), (1, 0));
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    assert_eq!(half(&world), 0);
}

#[tokio::test(start_paused = true)]
async fn template_place_is_checked_at_each_import() {
    let mut world = World::of(3, Mode::Rolling, Ill::Well);
    world.options.placement.datastore = Some("datastore2".into());
    begin(&world).await;
    // Removed, or changed, between the import of the template and the import of the VM.
    let twin = World::of(3, Mode::Rolling, Ill::Well);
    begin(&twin).await;
    give(&twin, Request::Resume).await.arrived();
    let import = twin.calls().iter().position(|call| call.name == "import").unwrap() + 1;
    let at = At { call: import, fault: Fault::CutBefore, lasting: false };
    give_with(&world, Request::Resume, None, Some(at)).await;
    world.lock().templates.clear();
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    let templates = world.lock().templates.clone();
    assert!(matches!(templates.as_slice(), [one] if one.whole && one.placement == world.options.placement));
    let hold = Lease::acquire(&world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    let (guarded, placement) = (GuardedHypervisor::new(&world, &hold, None), &world.options.placement);
    let like: Vm = world.old_vm("cp1");
    let image = staged(&guarded, &world, &like, placement).await.unwrap();
    world.lock().templates[0].digest = "another".to_owned();
    let (uuid, stamp) = (uuid::Uuid::new_v4(), stamp("cp1", None).unwrap());
    let replacement = |image| CloneRequest {
        name: "x",
        uuid,
        image,
        settings: CloneSettings::Replaces { vm: &like, size: None },
        stamp: stamp.clone(),
        placement,
    };
    let imported = async || guarded.clone_vm(&replacement(&image), &guarded.call()).await;
    assert_eq!(imported().await.unwrap_err().kind, ErrorKind::Refused);
    world.lock().templates.clear();
    assert_eq!(imported().await.unwrap_err().kind, ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn missing_place_is_refused_by_the_plan() {
    let mut world = world();
    assert!(super::stamp::refusals(&world).await.is_empty());
    world.options.placement.datastore = Some("nowhere".into());
    assert_eq!(super::stamp::refusals(&world).await, ["upgrade.placement"]);
}
