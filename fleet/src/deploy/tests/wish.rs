//! What may be wanted of what was begun.

use uuid::Uuid;

use super::fake::{DEPLOYMENT, DESTROY_ALL, wanted};
use crate::deploy::{Kept, Wish};

/// Somebody has copied a description and put his own folder into it, or a datastore was renamed: the VMs that are seen are not
/// those that the journal is of, so neither may they be removed, nor may it be said that the others are gone.
#[test]
fn a_journal_of_another_deployment_is_left_alone() {
    let other = Uuid::from_u128(0xbb);
    let wanted = wanted(1);
    let begun = Wish::Deploy(&wanted).applied(DEPLOYMENT, None, &[]).unwrap();
    assert_eq!(begun.deployment, Some(DEPLOYMENT));
    for wish in [Wish::Deploy(&wanted), DESTROY_ALL] {
        let refused = wish.applied(other, Some(begun.clone()), &[]).unwrap_err().to_string();
        assert!(refused.contains(&DEPLOYMENT.to_string()) && refused.contains(&other.to_string()), "{refused}");
        assert!(wish.applied(DEPLOYMENT, Some(begun.clone()), &[]).is_ok());
        // A journal of before this was noted is whoever's it is found by.
        let noted = wish.applied(other, Some(Kept { deployment: None, ..begun.clone() }), &[]).unwrap();
        assert_eq!(noted.deployment, Some(other));
    }
}
