// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * ibfake - test only: an RDMA device "fake0" that moves no data. It exists so that the real uverbs
 * code can be driven where rdma_rxe cannot: work queues (WQ_FATAL), a device whose driver no program
 * knows, and removal under a user on kernels where rdma_rxe lacks disassociate_ucontext.
 *
 * One line a write to /dev/ibfake (root only):
 *
 *	remove			unregisters the device: who has it open gets DEVICE_FATAL
 *	add			registers it again
 *	wq NUM EVENT [COUNT]	the event handler of the work queue of that number
 *
 * Queues exist as numbers only: posting, polling and arming do nothing, a completion never comes.
 *
 * Errors: EINVAL (not understood, a count out of range), ENOENT (no such work queue), ENODEV
 * (remove: it is not there), EEXIST (add: it is there), EINTR (killed meanwhile).
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

#define MAX_COUNT 1000000
#define MAX_OBJECTS 1024
#define MAX_DEPTH 4096

struct fake_dev {
	struct ib_device ib;
};

struct fake_ucontext {
	struct ib_ucontext ib;
};

struct fake_pd {
	struct ib_pd ib;
};

struct fake_cq {
	struct ib_cq ib;
};

struct fake_qp {
	struct ib_qp ib;
};

struct fake_srq {
	struct ib_srq ib;
};

struct fake_wq {
	struct ib_wq ib;
	struct list_head list;
};

/* Orders commands: at most one of them at a time adds or removes. */
static DEFINE_MUTEX(control);
static struct fake_dev *fake;

/* The work queues, and the next number; a work queue in the list is not freed. */
static DEFINE_MUTEX(objects);
static LIST_HEAD(wqs);
static u32 next_number = 16;

static u32 new_number(void)
{
	lockdep_assert_held(&objects);
	return next_number++ & 0xffffff;
}

static int fake_query_device(struct ib_device *dev, struct ib_device_attr *attr,
			     struct ib_udata *udata)
{
	memset(attr, 0, sizeof(*attr));
	attr->sys_image_guid = dev->node_guid;
	attr->max_qp = MAX_OBJECTS;
	attr->max_cq = MAX_OBJECTS;
	attr->max_srq = MAX_OBJECTS;
	attr->max_pd = MAX_OBJECTS;
	attr->max_wq_type_rq = MAX_OBJECTS;
	attr->max_qp_wr = MAX_DEPTH;
	attr->max_srq_wr = MAX_DEPTH;
	attr->max_cqe = MAX_DEPTH;
	attr->max_send_sge = 4;
	attr->max_recv_sge = 4;
	attr->max_srq_sge = 4;
	attr->max_pkeys = 1;
	return 0;
}

static int fake_query_port(struct ib_device *dev, u32 port, struct ib_port_attr *attr)
{
	attr->state = IB_PORT_ACTIVE;
	attr->phys_state = IB_PORT_PHYS_STATE_LINK_UP;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = IB_MTU_4096;
	attr->gid_tbl_len = 1;
	attr->pkey_tbl_len = 1;
	attr->active_speed = IB_SPEED_QDR;
	attr->active_width = IB_WIDTH_4X;
	attr->max_msg_sz = 1U << 30;
	attr->lid = 1;
	return 0;
}

static int fake_port_immutable(struct ib_device *dev, u32 port, struct ib_port_immutable *fixed)
{
	fixed->gid_tbl_len = 1;
	fixed->pkey_tbl_len = 1;
	fixed->core_cap_flags = RDMA_CORE_CAP_PROT_IB;
	return 0;
}

static int fake_query_gid(struct ib_device *dev, u32 port, int index, union ib_gid *gid)
{
	gid->global.subnet_prefix = cpu_to_be64(0xfe80000000000000ULL);
	gid->global.interface_id = dev->node_guid;
	return 0;
}

static int fake_query_pkey(struct ib_device *dev, u32 port, u16 index, u16 *pkey)
{
	*pkey = 0xffff;
	return 0;
}

static enum rdma_link_layer fake_link_layer(struct ib_device *dev, u32 port)
{
	return IB_LINK_LAYER_INFINIBAND;
}

static int fake_alloc_ucontext(struct ib_ucontext *ctx, struct ib_udata *udata)
{
	return 0;
}

static void fake_dealloc_ucontext(struct ib_ucontext *ctx)
{
}

static void fake_disassociate(struct ib_ucontext *ctx)
{
}

static int fake_alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static int fake_dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
static int fake_create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
			  struct uverbs_attr_bundle *attrs)
#else
static int fake_create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
			  struct ib_udata *udata)
#endif
{
	if (!attr->cqe || attr->cqe > MAX_DEPTH)
		return -EINVAL;
	cq->cqe = attr->cqe;
	return 0;
}

static int fake_destroy_cq(struct ib_cq *cq, struct ib_udata *udata)
{
	return 0;
}

static int fake_poll_cq(struct ib_cq *cq, int entries, struct ib_wc *wc)
{
	return 0;
}

static int fake_arm_cq(struct ib_cq *cq, enum ib_cq_notify_flags flags)
{
	return 0;
}

static int fake_create_qp(struct ib_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	mutex_lock(&objects);
	qp->qp_num = new_number();
	mutex_unlock(&objects);
	return 0;
}

static int fake_modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
			  struct ib_udata *udata)
{
	return 0;
}

static int fake_query_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
			 struct ib_qp_init_attr *init)
{
	return 0;
}

static int fake_destroy_qp(struct ib_qp *qp, struct ib_udata *udata)
{
	return 0;
}

static int fake_create_srq(struct ib_srq *srq, struct ib_srq_init_attr *attr,
			   struct ib_udata *udata)
{
	return 0;
}

static int fake_modify_srq(struct ib_srq *srq, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask,
			   struct ib_udata *udata)
{
	return 0;
}

static int fake_query_srq(struct ib_srq *srq, struct ib_srq_attr *attr)
{
	return 0;
}

static int fake_destroy_srq(struct ib_srq *srq, struct ib_udata *udata)
{
	return 0;
}

static struct ib_wq *fake_create_wq(struct ib_pd *pd, struct ib_wq_init_attr *attr,
				    struct ib_udata *udata)
{
	struct fake_wq *wq = kzalloc(sizeof(*wq), GFP_KERNEL);

	if (!wq)
		return ERR_PTR(-ENOMEM);
	/* The core fills in the rest once this has returned; these two an event may want before. */
	wq->ib.event_handler = attr->event_handler;
	wq->ib.wq_context = attr->wq_context;
	wq->ib.device = pd->device;
	mutex_lock(&objects);
	wq->ib.wq_num = new_number();
	list_add_tail(&wq->list, &wqs);
	mutex_unlock(&objects);
	return &wq->ib;
}

static int fake_modify_wq(struct ib_wq *wq, struct ib_wq_attr *attr, u32 mask,
			  struct ib_udata *udata)
{
	return 0;
}

static int fake_destroy_wq(struct ib_wq *ib_wq, struct ib_udata *udata)
{
	struct fake_wq *wq = container_of(ib_wq, struct fake_wq, ib);

	mutex_lock(&objects);
	list_del(&wq->list);
	mutex_unlock(&objects);
	kfree(wq);
	return 0;
}

static const struct ib_device_ops fake_ops = {
	.owner = THIS_MODULE,
	/* Not one that anybody has a provider for. */
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.uverbs_abi_ver = 1,

	.query_device = fake_query_device,
	.query_port = fake_query_port,
	.get_port_immutable = fake_port_immutable,
	.query_gid = fake_query_gid,
	.query_pkey = fake_query_pkey,
	.get_link_layer = fake_link_layer,
	.alloc_ucontext = fake_alloc_ucontext,
	.dealloc_ucontext = fake_dealloc_ucontext,
	.disassociate_ucontext = fake_disassociate,
	.alloc_pd = fake_alloc_pd,
	.dealloc_pd = fake_dealloc_pd,
	.create_cq = fake_create_cq,
	.destroy_cq = fake_destroy_cq,
	.poll_cq = fake_poll_cq,
	.req_notify_cq = fake_arm_cq,
	.create_qp = fake_create_qp,
	.modify_qp = fake_modify_qp,
	.query_qp = fake_query_qp,
	.destroy_qp = fake_destroy_qp,
	.create_srq = fake_create_srq,
	.modify_srq = fake_modify_srq,
	.query_srq = fake_query_srq,
	.destroy_srq = fake_destroy_srq,
	.create_wq = fake_create_wq,
	.modify_wq = fake_modify_wq,
	.destroy_wq = fake_destroy_wq,

	INIT_RDMA_OBJ_SIZE(ib_ucontext, fake_ucontext, ib),
	INIT_RDMA_OBJ_SIZE(ib_pd, fake_pd, ib),
	INIT_RDMA_OBJ_SIZE(ib_cq, fake_cq, ib),
	INIT_RDMA_OBJ_SIZE(ib_qp, fake_qp, ib),
	INIT_RDMA_OBJ_SIZE(ib_srq, fake_srq, ib),
};

static int fake_add(void)
{
	struct fake_dev *dev;
	int ret;

	lockdep_assert_held(&control);
	if (fake)
		return -EEXIST;
	dev = ib_alloc_device(fake_dev, ib);
	if (!dev)
		return -ENOMEM;
	dev->ib.node_type = RDMA_NODE_IB_CA;
	dev->ib.phys_port_cnt = 1;
	dev->ib.num_comp_vectors = 1;
	dev->ib.node_guid = cpu_to_be64(0x0200000000000001ULL);
	strscpy(dev->ib.node_desc, "ibfake", sizeof(dev->ib.node_desc));
	ib_set_device_ops(&dev->ib, &fake_ops);
	ret = ib_register_device(&dev->ib, "fake%d", NULL);
	if (ret) {
		ib_dealloc_device(&dev->ib);
		return ret;
	}
	fake = dev;
	return 0;
}

static int fake_remove(void)
{
	struct fake_dev *dev = fake;

	lockdep_assert_held(&control);
	if (!dev)
		return -ENODEV;
	fake = NULL;
	ib_unregister_device(&dev->ib);
	ib_dealloc_device(&dev->ib);
	return 0;
}

static int fake_raise(u32 number, int event, u32 count)
{
	struct fake_wq *wq;
	int ret = -ENOENT;

	mutex_lock(&objects);
	list_for_each_entry(wq, &wqs, list)
		if (wq->ib.wq_num == number) {
			struct ib_event ev = { .device = wq->ib.device, .event = event };

			ev.element.wq = &wq->ib;
			ret = 0;
			while (count-- && !ret) {
				wq->ib.event_handler(&ev, wq->ib.wq_context);
				cond_resched();
				ret = fatal_signal_pending(current) ? -EINTR : 0;
			}
			break;
		}
	mutex_unlock(&objects);
	return ret;
}

static int fake_command(char *line)
{
	u32 number, count = 1;
	int event, fields;
	char rest;

	line = strim(line);
	if (!strcmp(line, "remove"))
		return fake_remove();
	if (!strcmp(line, "add"))
		return fake_add();
	fields = sscanf(line, "wq %u %d %u %c", &number, &event, &count, &rest);
	if (fields < 2 || fields > 3 || event < 0 || !count || count > MAX_COUNT)
		return -EINVAL;
	return fake_raise(number, event, count);
}

static ssize_t fake_write(struct file *file, const char __user *from, size_t len, loff_t *pos)
{
	char *line;
	int ret;

	if (len > 63)
		return -EINVAL;
	line = memdup_user_nul(from, len);
	if (IS_ERR(line))
		return PTR_ERR(line);
	ret = mutex_lock_killable(&control);
	if (!ret) {
		ret = fake_command(line);
		mutex_unlock(&control);
	}
	kfree(line);
	return ret ? ret : len;
}

static const struct file_operations fake_fops = {
	.owner = THIS_MODULE,
	.write = fake_write,
};

static struct miscdevice fake_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ibfake",
	.fops = &fake_fops,
	.mode = 0600,
};

static int __init fake_init(void)
{
	int ret;

	mutex_lock(&control);
	ret = fake_add();
	if (!ret) {
		ret = misc_register(&fake_misc);
		if (ret)
			fake_remove();
	}
	mutex_unlock(&control);
	return ret;
}

/* Contexts may be open: the removal takes the device away from them, and nothing here is called then. */
static void __exit fake_exit(void)
{
	misc_deregister(&fake_misc);
	mutex_lock(&control);
	fake_remove();
	mutex_unlock(&control);
}

module_init(fake_init);
module_exit(fake_exit);
MODULE_DESCRIPTION("Test only: an RDMA device that moves no data");
MODULE_LICENSE("Dual MIT/GPL");
