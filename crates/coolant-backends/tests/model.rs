//! The suite on the model store: it agrees with itself, and the suite is fit to be asked of others.

use std::sync::Arc;

use coolant_backends::conformance::{self, Case, Subject};
use coolant_core::model::ModelStore;
use coolant_core::store::Store;

fn run(case: &'static Case) {
    let clock = conformance::clock();
    let store: Arc<dyn Store> = Arc::new(ModelStore::new(clock.reader()));
    futures::executor::block_on((case.run)(Subject { twin: Arc::clone(&store), store, clock }));
}

coolant_backends::conformance_tests!(run);
