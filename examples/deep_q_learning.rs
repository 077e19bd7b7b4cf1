// Double deep Q-learning with a target network, in f16: a pole is balanced on a cart.
//
// cargo run --release --example deep_q_learning

use precast::prelude::*;

/// Position and speed of the cart, angle (radians) and angular speed of the pole.
type State = [f32; 4];

struct Transition {
    state: State,
    action: i64,
    reward: f32,
    next: State,
    /// 1 where the pole fell, else 0.
    fell: f32,
}

const EPISODES: usize = 120;
const LONGEST: usize = 200; // steps of an episode
const BATCH: usize = 64;
const DISCOUNT: f64 = 0.99;

fn main() -> Result<()> {
    let rng = &mut Rng::seed(1);
    let mut net =
        Child::new(sequential![Dense::new(4, 64, rng), ReLU, Dense::new(64, 64, rng), ReLU, Dense::new(64, 2, rng)]);
    let policy = Policy::new(Level::O2, DType::F16)?;
    policy.apply(&mut net)?;
    let target = net.deep_copy()?;
    target.freeze("**")?;
    net.set_train(true);
    let (mut optimizer, mut scale) = (Adam::new(net.params(), 1e-3), policy.loss_scale()?);

    let (mut replay, mut lengths): (Vec<Transition>, Vec<usize>) = Default::default();
    for episode in 0..EPISODES {
        let explore = (0.95f64.powi(episode as i32)).max(0.02);
        let mut state = [(); 4].map(|()| rng.uniform(-0.05, 0.05) as f32);
        for step in 1..=LONGEST {
            let action = match rng.uniform(0.0, 1.0) < explore {
                true => rng.integer(0, 2),
                false => net.call(&Tensor::from([state]))?.argmax(-1, false)?.item()? as i64,
            };
            let next = after(state, action);
            let fell = next[0].abs() > 2.4 || next[2].abs() > 0.21;
            replay.push(Transition { state, action, reward: 1.0, next, fell: f32::from(u8::from(fell)) });
            state = next;
            if replay.len() >= BATCH {
                learn(&net, &target, &mut optimizer, &mut scale, &replay, rng)?;
            }
            if fell || step == LONGEST {
                lengths.push(step);
                break;
            }
        }
    }
    let mean = |lengths: &[usize]| lengths.iter().sum::<usize>() as f64 / lengths.len() as f64;
    println!("mean steps: {:.0} of the first 20 episodes", mean(&lengths[..20]));
    println!("            {:.0} of the last 20, of at most {LONGEST}", mean(&lengths[EPISODES - 20..]));
    Ok(())
}

/// Takes one step with a random batch of the transitions.
fn learn(
    net: &Child<Sequential>,
    target: &Child<Sequential>,
    optimizer: &mut Adam,
    scale: &mut LossScale,
    replay: &[Transition],
    rng: &mut Rng,
) -> Result<()> {
    let batch = (0..BATCH).map(|_| &replay[rng.integer(0, replay.len() as i64) as usize]);
    let (states, actions, rewards, next, fell) =
        Tensor::unzip(batch.map(|t| (t.state, [t.action], [t.reward], t.next, [t.fell])));

    let best = net.call(&next)?.argmax(1, true)?;
    let value = (DISCOUNT * target.call(&next)?.gather(1, &best)?)?;
    let goal = formula!(rewards + value * (1 - fell))?;
    let loss = net.call(&states)?.gather(1, &actions)?.smooth_l1_loss(&goal, 1.0, Reduction::Mean)?;
    let _outcome = scale.step_clipped(optimizer, loss, 10.0)?;
    target.soft_update(net, 0.01)
}

/// Moves cart and pole by 0.02 s of a push to the left (action 0) or to the right (Barto, Sutton and Anderson 1983).
fn after([x, speed, angle, turn]: State, action: i64) -> State {
    let [gravity, cart, pole, half, strength, seconds] = [9.8, 1.0, 0.1, 0.5, 10.0, 0.02];
    let force = if action == 1 { strength } else { -strength };
    let (sin, cos) = angle.sin_cos();
    let push = (force + pole * half * turn * turn * sin) / (cart + pole);
    let turned = (gravity * sin - cos * push) / (half * (4.0 / 3.0 - pole * cos * cos / (cart + pole)));
    let moved = push - pole * half * turned * cos / (cart + pole);
    [x + seconds * speed, speed + seconds * moved, angle + seconds * turn, turn + seconds * turned]
}
