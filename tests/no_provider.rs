//! A build without a driver's provider: `cargo test -p uverbs --no-default-features --test no_provider`.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::path::Path;

use uverbs::fake::Fabric;
use uverbs::{Context, CreateErrorCause, DriverId, Explain, NoProviderReason};

#[test]
#[cfg_attr(feature = "rxe", ignore = "needs a build with --no-default-features")]
fn the_feature_that_builds_the_provider_in_is_named() {
    let device = Fabric::new().add_device("rxe0");
    let context = Context::on_kernel(device.kernel(), "rxe0", Path::new("/dev/null"), 2).unwrap();
    assert_eq!(
        (context.driver(), context.has_provider()),
        (DriverId::Rxe, false)
    );
    context.alloc_pd().unwrap();
    let error = context.create_cq(4).build().unwrap_err();
    let reason = NoProviderReason::NotBuiltIn {
        driver: DriverId::Rxe,
        feature: "rxe",
    };
    let told = matches!(&error.cause, CreateErrorCause::NoProvider { reason: found, .. } if *found == reason);
    assert!(told, "{error:?}");
    assert_eq!(
        error.to_string(),
        "cannot make a completion queue: the provider for the device's driver, rxe, is not built in: \
         build uverbs with its feature `rxe`: queries, protection domains and events work, queues do \
         not"
    );
    let text = error.report().to_string();
    let named = "\n  next: in Cargo.toml: `uverbs = { …, features = [\"rxe\"] }`";
    assert!(text.contains(named), "{text}");
}
