// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * ibinject - test only: raises any asynchronous event on any RDMA device, through the same calls
 * that a driver makes, so that user space reads it from the real uverbs path.
 *
 * One line a write to /dev/ibinject (root only); the write returns when all are raised:
 *
 *	DEVICE port PORT EVENT [COUNT]	ib_dispatch_event(), which hands it to a work queue
 *	DEVICE dev 0 EVENT [COUNT]	the same, for an event of the whole device
 *	DEVICE qp QPN EVENT [COUNT]	the queue pair's event handler
 *	DEVICE cq ID EVENT [COUNT]	the completion queue's; ID as the kernel's resource tracking has it
 *	DEVICE srq ID EVENT [COUNT]	the shared receive queue's; likewise
 *
 * EVENT is a number of enum ib_event_type; numbers the kernel does not know go through as well, as
 * they would from a driver. An event of one kind on a subject of another is refused only where the
 * core itself would be harmed.
 *
 * Errors: EINVAL (not understood, no such port, a count out of range), ENODEV (no such device),
 * ENOENT (no such object), EPERM (the object is the kernel's own), EINTR (killed meanwhile).
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/rwsem.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <rdma/ib_verbs.h>
#include <rdma/restrack.h>

#define MAX_COUNT 1000000

struct inj_dev {
	struct list_head list;
	struct ib_device *dev;
};

/* Read while injecting, so that a device cannot go away under it; written as devices come and go. */
static DECLARE_RWSEM(devs_sem);
static LIST_HEAD(devs);
static struct ib_client inj_client;

static int inj_add(struct ib_device *dev)
{
	struct inj_dev *d = kzalloc(sizeof(*d), GFP_KERNEL);

	if (!d)
		return -ENOMEM;
	d->dev = dev;
	ib_set_client_data(dev, &inj_client, d);
	down_write(&devs_sem);
	list_add_tail(&d->list, &devs);
	up_write(&devs_sem);
	return 0;
}

static void inj_remove(struct ib_device *dev, void *data)
{
	struct inj_dev *d = data;

	down_write(&devs_sem);
	list_del(&d->list);
	up_write(&devs_sem);
	kfree(d);
}

static struct ib_client inj_client = {
	.name = "ibinject",
	.add = inj_add,
	.remove = inj_remove,
	.no_kverbs_req = true,
};

/* Whether to go on; raising many takes a while. */
static int pause_between(void)
{
	cond_resched();
	return fatal_signal_pending(current) ? -EINTR : 0;
}

static int inject_unaffiliated(struct ib_device *dev, u32 port, int event, u32 count)
{
	struct ib_event ev = { .device = dev, .event = event };
	int ret = 0;

	/* The core reads the port's tables again on some events. */
	if (port && !rdma_is_port_valid(dev, port))
		return -EINVAL;
	if (!port && event != IB_EVENT_DEVICE_FATAL && event < IB_EVENT_GID_CHANGE)
		return -EINVAL;
	ev.element.port_num = port;
	while (count-- && !ret) {
		ib_dispatch_event(&ev);
		ret = pause_between();
	}
	return ret;
}

static void raise_on(struct rdma_restrack_entry *res, struct ib_event *ev)
{
	struct ib_srq *srq;
	struct ib_cq *cq;
	struct ib_qp *qp;

	switch (res->type) {
	case RDMA_RESTRACK_QP:
		qp = container_of(res, struct ib_qp, res);
		ev->element.qp = qp;
		if (qp->event_handler)
			qp->event_handler(ev, qp->qp_context);
		break;
	case RDMA_RESTRACK_CQ:
		cq = container_of(res, struct ib_cq, res);
		ev->element.cq = cq;
		if (cq->event_handler)
			cq->event_handler(ev, cq->cq_context);
		break;
	default:
		srq = container_of(res, struct ib_srq, res);
		ev->element.srq = srq;
		if (srq->event_handler)
			srq->event_handler(ev, srq->srq_context);
		break;
	}
}

static int inject_affiliated(struct ib_device *dev, enum rdma_restrack_type type, u32 id, int event,
			     u32 count)
{
	struct ib_event ev = { .device = dev, .event = event };
	struct rdma_restrack_entry *res;
	int ret = 0;

	/* Holds the object: its destroy waits until this is put. */
	res = rdma_restrack_get_byid(dev, type, id);
	if (IS_ERR(res))
		return PTR_ERR(res);
	if (rdma_is_kernel_res(res))
		ret = -EPERM;
	while (!ret && count--) {
		raise_on(res, &ev);
		ret = pause_between();
	}
	rdma_restrack_put(res);
	return ret;
}

static int inject(struct ib_device *dev, const char *what, u32 id, int event, u32 count)
{
	if (!strcmp(what, "port"))
		return id ? inject_unaffiliated(dev, id, event, count) : -EINVAL;
	if (!strcmp(what, "dev"))
		return id ? -EINVAL : inject_unaffiliated(dev, 0, event, count);
	if (!strcmp(what, "qp"))
		return inject_affiliated(dev, RDMA_RESTRACK_QP, id, event, count);
	if (!strcmp(what, "cq"))
		return inject_affiliated(dev, RDMA_RESTRACK_CQ, id, event, count);
	if (!strcmp(what, "srq"))
		return inject_affiliated(dev, RDMA_RESTRACK_SRQ, id, event, count);
	return -EINVAL;
}

static ssize_t inj_write(struct file *file, const char __user *from, size_t len, loff_t *pos)
{
	char name[IB_DEVICE_NAME_MAX], what[8], rest;
	int event, fields, ret = -ENODEV;
	struct inj_dev *d;
	u32 id, count = 1;
	char *line;

	BUILD_BUG_ON(IB_DEVICE_NAME_MAX < 64);
	if (len > 127)
		return -EINVAL;
	line = memdup_user_nul(from, len);
	if (IS_ERR(line))
		return PTR_ERR(line);
	fields = sscanf(line, "%63s %7s %u %d %u %c", name, what, &id, &event, &count, &rest);
	kfree(line);
	if (fields < 4 || fields > 5 || event < 0 || !count || count > MAX_COUNT)
		return -EINVAL;

	ret = down_read_killable(&devs_sem);
	if (ret)
		return ret;
	ret = -ENODEV;
	list_for_each_entry(d, &devs, list)
		if (!strcmp(dev_name(&d->dev->dev), name)) {
			ret = inject(d->dev, what, id, event, count);
			break;
		}
	up_read(&devs_sem);
	return ret ? ret : len;
}

static const struct file_operations inj_fops = {
	.owner = THIS_MODULE,
	.write = inj_write,
};

static struct miscdevice inj_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ibinject",
	.fops = &inj_fops,
	.mode = 0600,
};

static int __init inj_init(void)
{
	int ret = ib_register_client(&inj_client);

	if (ret)
		return ret;
	ret = misc_register(&inj_misc);
	if (ret)
		ib_unregister_client(&inj_client);
	return ret;
}

/* Nobody is in inj_write() any more: an open file holds the module. */
static void __exit inj_exit(void)
{
	misc_deregister(&inj_misc);
	ib_unregister_client(&inj_client);
}

module_init(inj_init);
module_exit(inj_exit);
MODULE_DESCRIPTION("Test only: raises asynchronous RDMA events");
MODULE_LICENSE("Dual MIT/GPL");
