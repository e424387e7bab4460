//! The imported bytes are those of the plan, even if the file was changed since.

use std::fs;
use std::path::PathBuf;

use super::command::{begin, begun, deployment, end, give, give_with};
use super::fake::fault::{At, Fault};
use super::fake::{Ill, World, new};
use super::package::{signer, write};
use crate::lease::TakeOver;
use crate::upgrade::{Mode, Outcome, Request, RunOutcome, Target};

/// Killed right before its first VM import: the OVA is verified, for the plan and for the run, and its template
/// imported.
async fn staged() -> World {
    let world = begun(1, Mode::Rolling, Ill::Well).await;
    let twin = World::of(1, Mode::Rolling, Ill::Well);
    begin(&twin).await;
    give(&twin, Request::Resume).await.arrived();
    let call = twin.calls().iter().position(|call| call.name == "import").unwrap() + 1;
    give_with(&world, Request::Resume, None, Some(At { call, fault: Fault::CutBefore, lasting: false })).await;
    world
}

/// The same, and the template was removed from the hypervisor.
async fn verified() -> World {
    let world = staged().await;
    assert_eq!(std::mem::take(&mut world.lock().templates).len(), 1);
    world
}

#[tokio::test(start_paused = true)]
async fn imported_template_needs_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let gone = directory.path().join("gone.ova");
    for (verb, end) in [(Request::Resume, Outcome::Upgraded), (Request::Rollback, Outcome::RolledBack)] {
        let world = staged().await;
        assert_eq!(give_with(&world, verb, Some(gone.clone()), None).await.outcome(), end);
    }
    // Without both, the missing part is reported, and nothing is imported.
    let world = verified().await;
    let reason = give_with(&world, Request::Resume, Some(gone), None).await.paused();
    assert!(reason.contains("gone.ova"), "{reason}");
    assert_eq!(world.called("import"), 0);
}

/// A controller has no file: if its image is not imported it says so, and goes on once it is.
#[tokio::test(start_paused = true)]
async fn image_without_file_needs_its_template() {
    let world = World::of(1, Mode::Rolling, Ill::Well);
    let target = Target { ova: PathBuf::new(), ..world.target.clone() };
    let silent = |_: &crate::upgrade::Notice<'_>| ();
    let begun = deployment(&world, &silent).apply_to(&target, &world.options, TakeOver::FromTheDead).await.unwrap();
    let RunOutcome::Paused(reason) = begun.0 else { panic!("{:?}", begun.0) };
    assert!(reason.words.contains("push its OVA there"), "{reason}");
    assert_eq!((reason.code.as_str(), world.called("import")), ("upgrade.ova", 0));
    let laid = staged().await.lock().templates.clone();
    world.lock().templates = laid;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn resume_with_another_ova_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let full = format!("0.2.0+{} (etcd 3.6)", new().build);
    // Another image; the same one, signed with another key; the same one, not signed.
    for (full, signer) in [(full.replace('b', "c"), None), (full.clone(), Some(signer())), (full, None)] {
        let world = verified().await;
        let other = write(directory.path(), &full, signer.as_ref());
        let reason = give_with(&world, Request::Resume, Some(other), None).await.paused();
        assert!(reason.contains("is not the OVA that was planned with"), "{reason}");
        assert_eq!(world.called("import"), 0);
        // With the right one it goes on.
        assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    }
}

#[tokio::test(start_paused = true)]
async fn ova_replaced_after_verification_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let world = verified().await;
    let place = directory.path().join("appliance.ova");
    fs::copy(&world.target.ova, &place).unwrap();
    let mut bytes = fs::read(&place).unwrap();
    // In the disk, which comes last.
    let damaged = bytes.len() - 4 * 1024;
    bytes[damaged] ^= 1;
    fs::write(&place, &bytes).unwrap();
    let reason = give_with(&world, Request::Resume, Some(place.clone()), None).await.paused();
    assert!(reason.contains("is damaged"), "{reason}");
    assert_eq!(world.called("import"), 0);
    fs::copy(&world.target.ova, &place).unwrap();
    assert_eq!(give_with(&world, Request::Resume, Some(place), None).await.outcome(), Outcome::Upgraded);
}
