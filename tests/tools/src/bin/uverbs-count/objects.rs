//! What is counted of objects: making one and unmaking it, in as many regions as the kernel's calls leave
//! of it.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use uverbs::abi::Kernel;
use uverbs::fake::Fabric;
use uverbs::{AccessFlags, Context, Rc};
use uverbs_tools::count::mark;
use uverbs_tools::quiet::Quiet;

use crate::rows::ROUNDS;

/// An object's rows, and the regions of each: one more than the kernel is called.
pub(crate) const OBJECTS: [([&str; 2], [usize; 2]); 4] = [
    (["create_pd", "destroy_pd"], [2, 2]),
    (["create_mr", "destroy_mr"], [2, 2]),
    (["create_cq", "destroy_cq"], [3, 2]),
    (["create_qp", "destroy_qp"], [4, 2]),
];

/// The counts of [`OBJECTS`], each with its row: of all regions of one call together, one for each round.
pub(crate) fn sums(mut regions: &[u64]) -> Vec<(&'static str, Vec<u64>)> {
    let mut rows = Vec::new();
    for (names, parts) in OBJECTS {
        let mut sums = [const { Vec::new() }; 2];
        for _ in 0..ROUNDS {
            for (part, sums) in parts.into_iter().zip(&mut sums) {
                let (these, rest) = regions.split_at_checked(part).unwrap_or_default();
                sums.push(these.iter().sum());
                regions = rest;
            }
        }
        rows.extend(names.into_iter().zip(sums));
    }
    rows
}

/// How many regions there are of all objects.
pub(crate) fn regions() -> usize {
    let of_one = OBJECTS.iter().flat_map(|(_, parts)| parts);
    of_one.sum::<usize>() * ROUNDS
}

pub(crate) fn run(fabric: &Fabric) -> Result<(), Box<dyn Error>> {
    let kernel = Arc::new(Quiet::new(fabric, "rxe2")?);
    let seam: Arc<dyn Kernel> = Arc::clone(&kernel) as _;
    let context = Context::on_kernel(seam, "rxe2", Path::new("/dev/null"), 2)?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(64).build()?;
    // There are others of each kind, as in a program.
    let _qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
    let mut buffer = Some(pd.allocate(4096, AccessFlags::LOCAL_WRITE)?.into_inner()?);

    macro_rules! rounds {
        ($make:expr, $unmake:expr) => {
            for round in 0..ROUNDS + 2 {
                // What happens once happens in the first two.
                let is_counted = round >= 2;
                kernel.set_apart(is_counted);
                if is_counted {
                    mark();
                }
                let made = $make;
                if is_counted {
                    mark();
                    mark();
                }
                let unmade = $unmake(made?);
                if is_counted {
                    mark();
                }
                kernel.set_apart(false);
                unmade?;
            }
        };
    }
    rounds!(context.alloc_pd(), |pd| {
        drop(pd);
        Ok::<_, Box<dyn Error>>(())
    });
    rounds!(
        {
            let memory = buffer.take().ok_or("the buffer did not come back")?;
            pd.register(memory, AccessFlags::LOCAL_WRITE)
        },
        |region: uverbs::MemoryRegion<_>| {
            buffer = Some(region.into_inner()?);
            Ok::<_, Box<dyn Error>>(())
        }
    );
    rounds!(
        context.create_cq(64).build(),
        |cq: uverbs::CompletionQueue| cq.destroy()
    );
    rounds!(
        pd.create_qp::<Rc>(&cq, &cq)
            .max_send_wr(16)
            .max_recv_wr(16)
            .build(),
        |qp: uverbs::QueuePair<Rc>| qp.destroy()
    );
    Ok(())
}
