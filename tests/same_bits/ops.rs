//! Every op with a kernel, forward and backward, on inputs that are large enough to be split over threads.

use precast::{
    ConvOptions, ConvTransposeOptions, CrossEntropy, DType, GridPadding, Interpolation, Op, Padding, PoolOptions,
    RecurrentWeights, Reduction, Resize, Result, Tensor, run,
};

use crate::{digest::Digests, inputs::Draw, steps::Print};

/// Sizes of most inputs: not powers of two, and with more elements than one thread is given.
const ROWS: usize = 193;
const COLUMNS: usize = 302;

type Work = fn(&mut Draw) -> Result<Vec<Tensor>>;

pub fn all(dtype: DType, print: &mut Print) {
    for op in Op::ALL.iter().filter(|op| op.has_kernel()) {
        if let Some(inputs) = (1..=3).find(|inputs| by_catalogue(*op, *inputs, dtype).is_some()) {
            print(&format!("{dtype} {op}"), &|digest| {
                let (draw, results) = by_catalogue(*op, inputs, dtype).unwrap();
                digest_all(&draw, &results, digest);
            });
        }
    }
    for (name, work) in WORKS.iter().flat_map(|works| *works) {
        print(&format!("{dtype} {name}"), &|digest| {
            let mut draw = Draw::new(dtype);
            match work(&mut draw) {
                Ok(results) => digest_all(&draw, &results, digest),
                Err(error) => panic!("{dtype} {name}: {error}"),
            }
        });
    }
}

/// Draws inputs for an op whose arguments are `inputs` tensors of the same size, if it is one: numbers between 0 and 1,
/// and any.
fn by_catalogue(op: Op, inputs: usize, dtype: DType) -> Option<(Draw, Vec<Tensor>)> {
    let mut draw = Draw::new(dtype);
    let results = [Draw::unit, Draw::noise].map(|numbers| {
        let inputs: Vec<Tensor> = (0..inputs).map(|_| numbers(&mut draw, &[ROWS, ROWS])).collect();
        run(op, &inputs.iter().collect::<Vec<_>>()).ok()
    });
    let results: Vec<Tensor> = results.into_iter().flatten().collect();
    (!results.is_empty()).then_some((draw, results))
}

/// Digests the results, and the gradients obtained from noise in their place.
fn digest_all(draw: &Draw, results: &[Tensor], digest: &mut Digests) {
    for result in results {
        digest.result(result);
        if result.is_tracked() {
            let seed = Draw::new(result.dtype()).noise(result.shape()).detach();
            let grads = result.backward_from(&seed).unwrap();
            draw.leaves.iter().filter_map(|leaf| grads.of(leaf)).for_each(|grad| digest.gradient(&grad));
        }
    }
}

const BOTH: [usize; 2] = [ROWS, COLUMNS];
/// Size where each element is multiplied once.
const TALL: [usize; 2] = [911, COLUMNS];
const WORKS: [&[(&str, Work)]; 7] = [REDUCTIONS, NORMS, LOSSES, PRODUCTS, POOLS, PLACES, ELEMENTS];

const REDUCTIONS: &[(&str, Work)] = &[
    ("sum of all", |d| Ok(vec![d.noise(&BOTH).sum_all()?])),
    ("sum of rows", |d| Ok(vec![d.noise(&BOTH).sum(&[1], false)?])),
    ("sum of columns", |d| Ok(vec![d.noise(&BOTH).sum(&[0], true)?])),
    ("sum of two axes", |d| Ok(vec![d.noise(&[40, 100, 50]).sum(&[0, 2], false)?])),
    ("mean of all", |d| Ok(vec![d.noise(&BOTH).mean_all()?])),
    ("mean of the middle", |d| Ok(vec![d.noise(&[40, 100, 50]).mean(&[1], false)?])),
    ("max", |d| Ok(vec![d.noise(&BOTH).max(&[1], false)?, d.noise(&BOTH).max(&[], false)?])),
    ("min", |d| Ok(vec![d.noise(&BOTH).min(&[0], false)?])),
    ("prod", |d| Ok(vec![(d.unit(&BOTH) + 0.5)?.prod(&[1], false)?])),
    ("var", |d| Ok(vec![d.noise(&BOTH).var(&[1], 1, false)?, d.noise(&BOTH).var(&[0], 0, false)?])),
    ("std", |d| Ok(vec![d.noise(&BOTH).std(&[1], 1, false)?, d.noise(&BOTH).std(&[0, 1], 0, false)?])),
    ("norm 1", |d| Ok(vec![d.noise(&BOTH).norm(1.0, &[1], false)?])),
    ("norm 2", |d| Ok(vec![d.noise(&BOTH).norm(2.0, &[0, 1], false)?, d.noise(&BOTH).norm(2.0, &[0], false)?])),
    ("norm 3", |d| Ok(vec![d.noise(&BOTH).norm(3.0, &[1], false)?])),
    ("norm infinite", |d| Ok(vec![d.noise(&BOTH).norm(f64::INFINITY, &[1], false)?])),
    ("cumsum", |d| Ok(vec![d.noise(&BOTH).cumsum(1)?, d.noise(&BOTH).cumsum(0)?])),
    ("cumprod", |d| Ok(vec![(d.unit(&BOTH) + 0.5)?.cumprod(1)?])),
    ("argmax, argmin", |d| Ok(vec![d.noise(&BOTH).argmax(1, false)?, d.noise(&BOTH).argmin(0, false)?])),
    ("logsumexp", |d| Ok(vec![d.noise(&BOTH).logsumexp(&[1], false)?, d.noise(&BOTH).logsumexp(&[0, 1], false)?])),
    ("softmax", |d| Ok(vec![d.noise(&BOTH).softmax(1)?, d.noise(&BOTH).softmax(0)?])),
    ("log_softmax", |d| Ok(vec![d.noise(&BOTH).log_softmax(1)?, d.noise(&BOTH).log_softmax(0)?])),
    ("softmin", |d| Ok(vec![d.noise(&BOTH).softmin(1)?])),
    ("glu", |d| Ok(vec![d.noise(&BOTH).glu(1)?])),
    ("topk, sort", |d| Ok(vec![d.noise(&BOTH).topk(7, 1, true)?.0, d.noise(&BOTH).sort(0, true)?.0])),
    ("dist", |d| Ok(vec![d.noise(&BOTH).dist(&d.noise(&BOTH), 2.0)?])),
    ("cdist", |d| Ok(vec![d.noise(&[150, 60]).cdist(&d.noise(&[130, 60]), 2.0)?])),
    ("pdist", |d| Ok(vec![d.noise(&[150, 60]).pdist(3.0)?])),
    ("cosine_similarity", |d| Ok(vec![d.noise(&BOTH).cosine_similarity(&d.noise(&BOTH), 1, 1e-6)?])),
    ("renorm", |d| Ok(vec![d.noise(&BOTH).renorm(2.0, 0, 1.0)?])),
];

const NORMS: &[(&str, Work)] = &[
    ("layer_norm", |d| {
        let (gamma, beta) = (d.noise(&[COLUMNS]), d.noise(&[COLUMNS]));
        Ok(vec![d.noise(&BOTH).layer_norm(&[COLUMNS], Some(&gamma), Some(&beta), 1e-5)?])
    }),
    ("rms_norm", |d| Ok(vec![d.noise(&BOTH).rms_norm(Some(&d.noise(&[COLUMNS])), 1e-5)?])),
    ("batch_norm", |d| {
        let [mean, gamma, beta] = [(); 3].map(|()| d.noise(&[24]));
        let var = d.unit(&[24]);
        Ok(vec![d.noise(&[8, 24, 30, 30]).batch_norm(&mean, &var, Some(&gamma), Some(&beta), 1e-5)?])
    }),
    ("batch_norm_train", |d| {
        let (gamma, beta) = (d.noise(&[24]), d.noise(&[24]));
        let (y, mean, var) = d.noise(&[8, 24, 30, 30]).batch_norm_train(Some(&gamma), Some(&beta), 1e-5)?;
        Ok(vec![y, mean, var])
    }),
    ("group_norm", |d| {
        let (gamma, beta) = (d.noise(&[24]), d.noise(&[24]));
        Ok(vec![d.noise(&[8, 24, 30, 30]).group_norm(6, Some(&gamma), Some(&beta), 1e-5)?])
    }),
    ("instance_norm", |d| {
        let (gamma, beta) = (d.noise(&[24]), d.noise(&[24]));
        Ok(vec![d.noise(&[8, 24, 30, 30]).instance_norm(Some(&gamma), Some(&beta), 1e-5)?])
    }),
];

const LOSSES: &[(&str, Work)] = &[
    ("cross_entropy", |d| Ok(vec![d.noise(&BOTH).cross_entropy(&d.index(COLUMNS, &[ROWS]))?])),
    ("cross_entropy with options", |d| {
        let weight = Some(d.unit(&[COLUMNS]).detach());
        let options = CrossEntropy::default().weight(weight).label_smoothing(0.1).ignore_index(Some(3));
        Ok(vec![d.noise(&BOTH).cross_entropy_with(&d.index(COLUMNS, &[ROWS]), &options)?])
    }),
    ("cross_entropy of probabilities", |d| Ok(vec![d.noise(&BOTH).cross_entropy(&d.unit(&BOTH))?])),
    ("nll_loss", |d| Ok(vec![d.noise(&BOTH).nll_loss(&d.index(COLUMNS, &[ROWS]), Reduction::Mean)?])),
    ("ctc_loss", |d| {
        let (labels, lengths) = (d.index(11, &[16, 12]), [40i64, 12].map(|length| Tensor::from([length; 16])));
        Ok(vec![d.noise(&[40, 16, 12]).ctc_loss(&labels, &lengths[0], &lengths[1], 11, true, Reduction::Mean)?])
    }),
    ("mse_loss", |d| Ok(vec![d.noise(&BOTH).mse_loss(&d.noise(&BOTH), Reduction::Mean)?])),
    ("mse_loss of each", |d| Ok(vec![d.noise(&BOTH).mse_loss(&d.noise(&BOTH), Reduction::None)?])),
    ("l1_loss", |d| Ok(vec![d.noise(&BOTH).l1_loss(&d.noise(&BOTH), Reduction::Sum)?])),
    ("smooth_l1_loss", |d| Ok(vec![d.noise(&BOTH).smooth_l1_loss(&d.noise(&BOTH), 0.7, Reduction::Mean)?])),
    ("huber_loss", |d| Ok(vec![d.noise(&BOTH).huber_loss(&d.noise(&BOTH), 0.7, Reduction::Mean)?])),
    ("kl_div", |d| Ok(vec![d.noise(&BOTH).kl_div(&d.unit(&BOTH), Reduction::Mean)?])),
    ("binary_cross_entropy", |d| Ok(vec![d.unit(&BOTH).binary_cross_entropy(&d.unit(&BOTH), Reduction::Mean)?])),
    ("bce_with_logits", |d| Ok(vec![d.noise(&BOTH).bce_with_logits(&d.unit(&BOTH), Reduction::Mean)?])),
    ("poisson_nll_loss", |d| Ok(vec![d.noise(&BOTH).poisson_nll_loss(&d.unit(&BOTH), true, Reduction::Mean)?])),
    ("gaussian_nll_loss", |d| {
        let (mean, target, var) = (d.noise(&BOTH), d.noise(&BOTH), d.unit(&BOTH));
        Ok(vec![mean.gaussian_nll_loss(&target, &var, 1e-6, Reduction::Mean)?])
    }),
    ("hinge_embedding_loss", |d| {
        Ok(vec![d.noise(&BOTH).hinge_embedding_loss(&d.noise(&BOTH).sign()?, 1.0, Reduction::Mean)?])
    }),
    ("soft_margin_loss", |d| Ok(vec![d.noise(&BOTH).soft_margin_loss(&d.noise(&BOTH).sign()?, Reduction::Mean)?])),
    ("margin_ranking_loss", |d| {
        let (first, second, target) = (d.noise(&BOTH), d.noise(&BOTH), d.noise(&BOTH).sign()?);
        Ok(vec![first.margin_ranking_loss(&second, &target, 0.1, Reduction::Mean)?])
    }),
    ("cosine_embedding_loss", |d| {
        let (first, second, target) = (d.noise(&BOTH), d.noise(&BOTH), d.noise(&[ROWS]).sign()?);
        Ok(vec![first.cosine_embedding_loss(&second, &target, 0.1, Reduction::Mean)?])
    }),
    ("triplet_margin_loss", |d| {
        let [anchor, alike, different] = [(); 3].map(|()| d.noise(&BOTH));
        Ok(vec![anchor.triplet_margin_loss(&alike, &different, 1.0, 2.0, Reduction::Mean)?])
    }),
    ("multi_margin_loss", |d| {
        Ok(vec![d.noise(&BOTH).multi_margin_loss(&d.index(COLUMNS, &[ROWS]), 1, 1.0, Reduction::Mean)?])
    }),
    ("multilabel_margin_loss", |d| {
        Ok(vec![d.noise(&BOTH).multilabel_margin_loss(&d.index(COLUMNS, &BOTH), Reduction::Mean)?])
    }),
    ("multilabel_soft_margin_loss", |d| {
        Ok(vec![d.noise(&BOTH).multilabel_soft_margin_loss(&d.unit(&BOTH), Reduction::Mean)?])
    }),
];

const PRODUCTS: &[(&str, Work)] = &[
    ("matmul of odd sizes", |d| Ok(vec![d.noise(&[70, 515]).matmul(&d.noise(&[515, 90]))?])),
    ("linear", |d| Ok(vec![d.noise(&[70, 300]).linear(&d.noise(&[130, 300]), Some(&d.noise(&[130])))?])),
    ("linear of few rows", |d| Ok(vec![d.noise(&[4, 700]).linear(&d.noise(&[400, 700]), None)?])),
    ("matmul of few rows", |d| Ok(vec![d.noise(&[4, 700]).matmul(&d.noise(&[700, 400]))?])),
    ("batch_matmul", |d| Ok(vec![d.noise(&[6, 50, 70]).batch_matmul(&d.noise(&[6, 70, 40]))?])),
    ("matmul_ext", |d| Ok(vec![d.noise(&[6, 1, 50, 70]).matmul_ext(&d.noise(&[4, 70, 40]))?])),
    ("einsum", |d| Ok(vec![Tensor::einsum("bij,bkj->bik", &[&d.noise(&[6, 50, 70]), &d.noise(&[6, 40, 70])])?])),
    ("tensordot", |d| Ok(vec![d.noise(&[60, 10, 70]).tensordot(&d.noise(&[70, 10, 50]), &[2, 1], &[0, 1])?])),
    ("mv", |d| Ok(vec![d.noise(&TALL).mv(&d.noise(&[COLUMNS]))?])),
    ("dot", |d| Ok(vec![d.noise(&[300_001]).dot(&d.noise(&[300_001]))?])),
    ("vecdot, inner", |d| {
        Ok(vec![d.noise(&BOTH).vecdot(&d.noise(&BOTH))?, d.noise(&[50, 60]).inner(&d.noise(&[70, 60]))?])
    }),
    ("outer", |d| Ok(vec![d.noise(&[TALL[0]]).outer(&d.noise(&[COLUMNS]))?])),
    ("addmm", |d| Ok(vec![d.noise(&[70, 90]).addmm(&d.noise(&[70, 300]), &d.noise(&[300, 90]))?])),
    ("addbmm", |d| Ok(vec![d.noise(&[50, 40]).addbmm(&d.noise(&[6, 50, 70]), &d.noise(&[6, 70, 40]))?])),
    ("baddbmm", |d| Ok(vec![d.noise(&[6, 50, 40]).baddbmm(&d.noise(&[6, 50, 70]), &d.noise(&[6, 70, 40]))?])),
    ("addmv", |d| Ok(vec![d.noise(&[TALL[0]]).addmv(&d.noise(&TALL), &d.noise(&[COLUMNS]))?])),
    ("addr", |d| Ok(vec![d.noise(&TALL).addr(&d.noise(&[TALL[0]]), &d.noise(&[COLUMNS]))?])),
    ("multi_dot", |d| Ok(vec![Tensor::multi_dot(&[&d.noise(&[60, 80]), &d.noise(&[80, 70]), &d.noise(&[70, 90])])?])),
    ("bilinear", |d| {
        Ok(vec![d.noise(&[40, 30]).bilinear(&d.noise(&[40, 20]), &d.noise(&[25, 30, 20]), Some(&d.noise(&[25])))?])
    }),
    ("attention", |d| {
        let [q, k, v] = [(); 3].map(|()| d.noise(&[2, 4, 70, 32]));
        let mask = d.mask(&[70, 70]);
        Ok(vec![
            q.scaled_dot_product_attention(&k, &v, None, true, None)?,
            q.scaled_dot_product_attention(&k, &v, Some(&mask), false, Some(0.2))?,
        ])
    }),
    ("conv1d", |d| {
        let options = ConvOptions::default().padding(Padding::Same);
        Ok(vec![d.noise(&[4, 20, 200]).conv1d(&d.noise(&[40, 20, 5]), Some(&d.noise(&[40])), &options)?])
    }),
    ("conv2d", |d| {
        let options = ConvOptions::default().padding(Padding::Same);
        Ok(vec![d.noise(&[4, 20, 24, 24]).conv2d(&d.noise(&[40, 20, 3, 3]), Some(&d.noise(&[40])), &options)?])
    }),
    ("conv2d of few channels", |d| {
        Ok(vec![d.noise(&[10, 1, 28, 28]).conv2d(&d.noise(&[6, 1, 5, 5]), None, &ConvOptions::default())?])
    }),
    ("conv2d of groups", |d| {
        let options = ConvOptions::default().groups(4).stride(vec![2]);
        Ok(vec![d.noise(&[4, 32, 25, 25]).conv2d(&d.noise(&[64, 8, 3, 3]), None, &options)?])
    }),
    ("conv2d of each channel", |d| {
        let options = ConvOptions::default().groups(32);
        Ok(vec![d.noise(&[4, 32, 25, 25]).conv2d(&d.noise(&[32, 1, 3, 3]), None, &options)?])
    }),
    ("conv3d", |d| {
        Ok(vec![d.noise(&[2, 6, 9, 10, 11]).conv3d(&d.noise(&[20, 6, 3, 3, 3]), None, &ConvOptions::default())?])
    }),
    ("conv_transpose1d", |d| {
        let options = ConvTransposeOptions::default();
        Ok(vec![d.noise(&[4, 20, 200]).conv_transpose1d(&d.noise(&[20, 40, 5]), None, &options)?])
    }),
    ("conv_transpose2d", |d| {
        let options = ConvTransposeOptions::default().stride(vec![2]);
        let bias = d.noise(&[30]);
        Ok(vec![d.noise(&[4, 20, 14, 14]).conv_transpose2d(&d.noise(&[20, 30, 3, 3]), Some(&bias), &options)?])
    }),
    ("conv_transpose3d", |d| {
        let options = ConvTransposeOptions::default();
        Ok(vec![d.noise(&[2, 6, 9, 10, 11]).conv_transpose3d(&d.noise(&[6, 20, 3, 3, 3]), None, &options)?])
    }),
    ("rnn_cell", |d| {
        let (ih, hh, h) = (d.noise(&[80, 60]), d.noise(&[80, 80]), d.noise(&[70, 80]));
        let weights = RecurrentWeights { ih: &ih, hh: &hh, biases: None };
        Ok(vec![d.noise(&[70, 60]).rnn_cell(&weights, &h, false)?])
    }),
    ("gru_cell", |d| {
        let (ih, hh, h) = (d.noise(&[240, 60]), d.noise(&[240, 80]), d.noise(&[70, 80]));
        let biases = (&d.noise(&[240]), &d.noise(&[240]));
        let weights = RecurrentWeights { ih: &ih, hh: &hh, biases: Some(biases) };
        Ok(vec![d.noise(&[70, 60]).gru_cell(&weights, &h)?])
    }),
    ("lstm_cell", |d| {
        let (ih, hh) = (d.noise(&[320, 60]), d.noise(&[320, 80]));
        let (h, c) = (d.noise(&[70, 80]), d.noise(&[70, 80]));
        let weights = RecurrentWeights { ih: &ih, hh: &hh, biases: None };
        let (h, c) = d.noise(&[70, 60]).lstm_cell(&weights, (&h, &c))?;
        Ok(vec![h, c])
    }),
    ("rnn, gru, lstm", |d| {
        let (ih, hh) = (d.noise(&[160, 30]), d.noise(&[160, 40]));
        let (x, biases) = (d.noise(&[12, 9, 30]), (&d.noise(&[160]), &d.noise(&[160])));
        let gates = |x: &Tensor, count: usize| x.slice(0, 0..40 * count);
        let (ih1, hh1, ih3, hh3) = (gates(&ih, 1)?, gates(&hh, 1)?, gates(&ih, 3)?, gates(&hh, 3)?);
        let weights = |ih, hh| RecurrentWeights { ih, hh, biases: None };
        let lstm = RecurrentWeights { ih: &ih, hh: &hh, biases: Some(biases) };
        let (y, (_, c)) = x.lstm(&lstm, None, false)?;
        Ok(vec![y, c, x.rnn(&weights(&ih1, &hh1), None, true, true)?.0, x.gru(&weights(&ih3, &hh3), None, false)?.0])
    }),
];

const POOLS: &[(&str, Work)] = &[
    ("max_pool1d", |d| Ok(vec![d.noise(&[8, 30, 700]).max_pool1d(3, 2)?])),
    ("max_pool2d", |d| Ok(vec![d.noise(&[8, 24, 30, 30]).max_pool2d(3, 2)?])),
    ("max_pool3d", |d| Ok(vec![d.noise(&[8, 6, 14, 15, 16]).max_pool3d(2, 2)?])),
    ("avg_pool1d", |d| Ok(vec![d.noise(&[8, 30, 700]).avg_pool1d(3, 2)?])),
    ("avg_pool2d", |d| {
        let options = PoolOptions::new(3, 1).padding(Padding::Same);
        Ok(vec![d.noise(&[8, 24, 30, 30]).avg_pool2d(2, 2)?, d.noise(&[8, 24, 30, 30]).avg_pool2d_with(&options)?])
    }),
    ("avg_pool3d", |d| Ok(vec![d.noise(&[8, 6, 14, 15, 16]).avg_pool3d(2, 2)?])),
    ("adaptive_avg_pool1d", |d| Ok(vec![d.noise(&[8, 30, 700]).adaptive_avg_pool1d(&[9])?])),
    ("adaptive_avg_pool2d", |d| Ok(vec![d.noise(&[8, 24, 30, 30]).adaptive_avg_pool2d(&[7, 4])?])),
    ("adaptive_avg_pool3d", |d| Ok(vec![d.noise(&[8, 6, 14, 15, 16]).adaptive_avg_pool3d(&[3, 4, 5])?])),
    ("adaptive_max_pool1d", |d| Ok(vec![d.noise(&[8, 30, 700]).adaptive_max_pool1d(&[9])?])),
    ("adaptive_max_pool2d", |d| Ok(vec![d.noise(&[8, 24, 30, 30]).adaptive_max_pool2d(&[7, 4])?])),
    ("adaptive_max_pool3d", |d| Ok(vec![d.noise(&[8, 6, 14, 15, 16]).adaptive_max_pool3d(&[3, 4, 5])?])),
    ("interpolate", |d| {
        let x = d.noise(&[4, 8, 40, 40]);
        let size = Resize::To(vec![61, 70]);
        Ok(vec![
            x.interpolate(&size, Interpolation::Nearest, false)?,
            x.interpolate(&size, Interpolation::Linear, true)?,
            x.interpolate(&size, Interpolation::Cubic, false)?,
        ])
    }),
    ("grid_sample of pictures", |d| {
        let (x, grid) = (d.noise(&[4, 8, 40, 40]), d.unit(&[4, 50, 50, 2]));
        Ok(vec![x.grid_sample(&grid, Interpolation::Linear, GridPadding::Border, false)?])
    }),
    ("grid_sample of volumes", |d| {
        let (x, grid) = (d.noise(&[2, 4, 20, 20, 20]), d.unit(&[2, 20, 20, 20, 3]));
        Ok(vec![x.grid_sample(&grid, Interpolation::Linear, GridPadding::Zeros, true)?])
    }),
    ("affine_grid", |d| Ok(vec![d.noise(&[4, 2, 3]).affine_grid(&[4, 3, 150, 150], false)?])),
];

const PLACES: &[(&str, Work)] = &[
    ("embedding", |d| Ok(vec![d.index(90, &[400]).embedding(&d.noise(&[90, 300]))?])),
    ("flip, roll", |d| Ok(vec![d.noise(&BOTH).flip(&[0, 1])?, d.noise(&BOTH).roll(&[5, -7], &[0, 1])?])),
    ("tile", |d| Ok(vec![d.noise(&BOTH).tile(&[2, 3])?])),
    ("tril, triu", |d| Ok(vec![d.noise(&BOTH).tril(3)?, d.noise(&BOTH).triu(-3)?])),
    ("one_hot", |d| Ok(vec![d.index(90, &BOTH).one_hot(90)?])),
    ("gather", |d| Ok(vec![d.noise(&BOTH).gather(1, &d.index(COLUMNS, &BOTH))?])),
    ("index_select", |d| Ok(vec![d.noise(&BOTH).index_select(0, &d.index(ROWS, &[400]))?])),
    ("scatter_add", |d| Ok(vec![d.noise(&BOTH).scatter_add(1, &d.index(COLUMNS, &BOTH), &d.noise(&BOTH))?])),
    ("scatter", |d| Ok(vec![d.noise(&BOTH).scatter(0, &d.index(ROWS, &[1, COLUMNS]), &d.noise(&[1, COLUMNS]))?])),
    ("index_add", |d| Ok(vec![d.noise(&BOTH).index_add(0, &d.index(ROWS, &[400]), &d.noise(&[400, COLUMNS]))?])),
    ("index_copy", |d| Ok(vec![d.noise(&BOTH).index_copy(0, &d.index(ROWS, &[1]), &d.noise(&[1, COLUMNS]))?])),
    ("index_put", |d| Ok(vec![d.noise(&BOTH).index_put(&d.index(ROWS, &[400]), &d.noise(&[400, COLUMNS]), true)?])),
    ("pad", |d| Ok(vec![d.noise(&BOTH).pad(&[(1, 2), (3, 4)], 0.5)?])),
    ("reflection_pad", |d| Ok(vec![d.noise(&[1, 8, 100, 200]).reflection_pad(&[(0, 0), (0, 0), (5, 5), (6, 7)])?])),
    ("replication_pad", |d| Ok(vec![d.noise(&[1, 8, 100, 200]).replication_pad(&[(0, 0), (0, 0), (5, 5), (6, 7)])?])),
    ("unfold", |d| Ok(vec![d.noise(&[2, 8, 60, 60]).unfold(&[3, 3], &[1, 1], &[1, 1], &[1, 1])?])),
    ("pixel_shuffle", |d| Ok(vec![d.noise(&[2, 36, 50, 50]).pixel_shuffle(3)?])),
    ("pixel_unshuffle", |d| Ok(vec![d.noise(&[2, 4, 150, 150]).pixel_unshuffle(3)?])),
    ("shapes", |d| {
        let x = d.noise(&[4, 50, 600]);
        let (first, last) = (x.slice(2, 0..100)?, x.at(1, 7)?);
        Ok(vec![
            x.reshape(&[50, -1])?.flatten(0)?,
            x.transpose(0, 2)?.unsqueeze(1)?.squeeze(1)?,
            Tensor::concat(&[&first, &x], 2)?,
            Tensor::stack(&[&last, &last], 0)?,
            x.split(&[200, 400], 2)?.remove(1),
            last.unsqueeze(1)?.broadcast_to(&[4, 80, 600])?,
        ])
    }),
    ("casts", |d| {
        // A cast is little work, which is split only for more elements.
        let x = d.noise(&[2 * ROWS, COLUMNS]);
        Ok([DType::F32, DType::F16, DType::Bf16, DType::F64].map(|to| x.cast(to)).to_vec())
    }),
];

const ELEMENTS: &[(&str, Work)] = &[
    ("broadcasts", |d| {
        let (x, row, column) = (d.noise(&BOTH), d.noise(&[COLUMNS]), d.noise(&[ROWS, 1]));
        Ok(vec![x.add(&row)?, x.mul(&column)?, column.sub(&row)?, x.div(&row)?])
    }),
    ("acosh", |d| Ok(vec![(d.unit(&BOTH) + 1.0)?.acosh()?])),
    ("bias_add", |d| Ok(vec![d.noise(&BOTH).bias_add(&d.noise(&[COLUMNS]))?])),
    ("prelu", |d| Ok(vec![d.noise(&[8, 24, 30, 30]).prelu(&d.unit(&[24]))?, d.noise(&BOTH).prelu(&d.unit(&[1]))?])),
    ("leaky_relu", |d| Ok(vec![d.noise(&BOTH).leaky_relu(0.1)?])),
    ("elu, celu", |d| Ok(vec![d.noise(&BOTH).elu(0.7)?, d.noise(&BOTH).celu(0.7)?])),
    ("softshrink", |d| Ok(vec![d.noise(&BOTH).softshrink(0.5)?])),
    ("clamp", |d| Ok(vec![d.noise(&BOTH).clamp(-1.0, 0.5)?])),
    ("lerp", |d| Ok(vec![d.noise(&BOTH).lerp(&d.noise(&BOTH), 0.3)?])),
    ("addcmul, addcdiv", |d| {
        let (x, a, b) = (d.noise(&BOTH), d.noise(&BOTH), d.unit(&BOTH));
        Ok(vec![x.addcmul(&a, &b, 0.7)?, x.addcdiv(&a, &b, 0.7)?])
    }),
    ("cross", |d| Ok(vec![d.noise(&[3, 50_001]).cross(&d.noise(&[3, 50_001]), 0)?])),
    ("rotary_embedding", |d| {
        let x = d.noise(&BOTH);
        Ok(vec![x.rotary_embedding(1e4, 0, false)?, x.rotary_embedding(1e4, 3, true)?])
    }),
    ("dropout", |d| Ok(vec![d.noise(&BOTH).dropout(0.4, 5)?])),
    ("masks", |d| {
        let (mask, x, y) = (d.mask(&BOTH), d.noise(&BOTH), d.noise(&BOTH));
        Ok(vec![
            mask.select(&x, &y)?,
            x.masked_fill(&mask, 2.0)?,
            mask.logical_and(&x.gt(&y)?)?,
            mask.logical_or(&x.lt(&y)?)?,
            mask.logical_not()?,
        ])
    }),
];
