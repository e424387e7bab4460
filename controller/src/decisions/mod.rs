//! What is to be done, decided by what was seen. Pure: nothing is asked or done here, and an answer that is not known is no
//! answer.

mod addresses;
mod pool;
mod sizes;
mod template;

pub use self::addresses::{Allocation, Malformed, Named, allocation, claimed, named, total};
pub use self::pool::{Unfit, WantedPool, wishes};
pub use self::sizes::{ControlPlaneSize, automatic, grown};
pub use self::template::Made;
